"""The language of a text, by its letters and a little more.

The contract: `detect` gives an ISO 639-1 code, or "und" where there are no letters or nothing
tells; it needs no model, looks at the first 2,000 characters and never raises. It is a label for
choosing rules and prompts, not a linguist's verdict: a script used by several languages gives the
most spoken one unless letters or small words tell them apart.
"""

from __future__ import annotations

import re

__all__ = ["detect"]

_SAMPLE = 2_000

# Code points by script (UAX #24); the names are languages where script and language agree.
_SCRIPTS = re.compile(
    "[\x00-@\u2000-\u3004\u3008-\u3040\uff00-\uff20]+"  # nobody's: spaces, digits, signs
    "|(?P<han>[\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U000323af]+)"
    "|(?P<kana>[\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\uff66-\uff9d]+)"
    "|(?P<latin>[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\uff21-\uff5a]"
    "[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\uff21-\uff5a\u0300-\u036f'’]*)"
    "|(?P<ko>[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]+)"
    "|(?P<cyrillic>[\u0400-\u052f]+)"
    "|(?P<arabic>[\u0620-\u065f\u066e-\u06d3\u06d5-\u06ef\u06fa-\u06ff\u0750-\u077f]+)"
    "|(?P<el>[\u0370-\u03ff\u1f00-\u1fff]+)"
    "|(?P<he>[\u05b0-\u05ea]+)"
    "|(?P<devanagari>[\u0900-\u0963\u0971-\u097f]+)"
    "|(?P<th>[\u0e01-\u0e3a\u0e40-\u0e4e]+)"
    "|(?P<lo>[\u0e81-\u0edf]+)|(?P<my>[\u1000-\u104f]+)|(?P<km>[\u1780-\u17d3]+)"
    "|(?P<bn>[\u0980-\u09ff]+)|(?P<pa>[\u0a00-\u0a7f]+)|(?P<gu>[\u0a80-\u0aff]+)"
    "|(?P<ta>[\u0b80-\u0bff]+)|(?P<te>[\u0c00-\u0c7f]+)|(?P<kn>[\u0c80-\u0cff]+)"
    "|(?P<ml>[\u0d00-\u0d7f]+)|(?P<si>[\u0d80-\u0dff]+)|(?P<am>[\u1200-\u137f]+)"
    "|(?P<ka>[\u10a0-\u10ff]+)|(?P<hy>[\u0531-\u0588]+)|(?P<bo>[\u0f40-\u0fbc]+)"
)
# A Chinese character, a Latin word, a Thai syllable of about four: each carries as much.
_BY_CHARACTER = frozenset({"han", "kana"})
_UNSPACED = frozenset({"th", "lo", "my", "km"})
_ASCII_LETTER = re.compile("[A-Za-z]")
_LATIN_WORD = re.compile("[a-z\u00df-\u024f\u1e00-\u1eff]+")

# Characters of Japan's own simplification or making, in no Chinese text.
_JAPANESE_ONLY = frozenset(
    "込働峠畑枠匂咲駅図円気対発売読沢庁県広桜栄覚実変験歩竜黒戻団圏帰転伝検権単営仏塩"
)
# A code holds where one of the letters occurs; the first that does wins.
_CYRILLIC = (("uk", "іїєґ"), ("be", "ў"), ("sr", "јљњћђџ"), ("kk", "әғқңұһ"))
_ARABIC = (("ur", "ٹڈڑںے"), ("fa", "پچژگی"))
_LATIN = (
    ("vi", "ăđơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ"),
    ("pl", "łąęśźż"),
    ("tr", "ğış"),
    ("cs", "řůě"),
    ("hu", "őű"),
    ("ro", "țș"),
    ("de", "ß"),
    ("es", "ñ¿¡"),
    ("pt", "ãõ"),
)
_SMALL_WORDS = {
    "en": "the of and to is in that it was for you i my we this with have not are on be at",
    "es": "el la los las de que y en un una por con para no está es mi yo pero como del se",
    "fr": "le la les des et est sont où à une je pas que pour qui vous avec sur ce du mais au",
    "de": "der die das und ist nicht ich ein eine zu mit den auf für wir sie es im dem auch",
    "it": "il la di che è un una per non sono con gli della ho mi ma come questo nel alla lo",
    "pt": "o os que e do da em um uma não para com eu por mais mas meu foi se no na",
    "nl": "de het een en van ik niet dat is op te met voor zijn wij maar ook aan er naar",
    "id": "yang dan di itu dengan untuk tidak ini dari saya dalam akan pada ke adalah",
    "vi": "và là của không tôi có cho một các được",
    "tr": "ve bir bu için değil ben çok ile da ne",
    "pl": "i w na nie się z do to jest że",
    "sv": "och att det är jag inte en som på för",
}
_VOTES: dict[str, tuple[str, ...]] = {
    word: tuple(code for code, words in _SMALL_WORDS.items() if word in words.split())
    for words in _SMALL_WORDS.values()
    for word in words.split()
}


def detect(text: str) -> str:
    """The main language of a text as an ISO 639-1 code, or "und". Raises nothing.

    >>> detect("Where did I put the keys?"), detect("我的钥匙在哪儿"), detect("昨日の会議")
    ('en', 'zh', 'ja')
    >>> detect("请帮我review一下这个PR"), detect("12:30"), detect("어제 도자기 수업")
    ('zh', 'und', 'ko')
    """
    text = text[:_SAMPLE]
    counts: dict[str, int] = {}
    if text.isascii():
        if not _ASCII_LETTER.search(text):
            return "und"
        return _latin(text)
    for match in _SCRIPTS.finditer(text):
        script = match.lastgroup
        if script is None:
            continue
        size = match.end() - match.start()
        weight = size if script in _BY_CHARACTER else (size + 3) // 4 if script in _UNSPACED else 1
        counts[script] = counts.get(script, 0) + weight
    if not counts:
        return "und"
    # Kana goes with Han, as Japanese is written in both; two kana carry as much as one character.
    han, kana = counts.pop("han", 0), counts.pop("kana", 0)
    if han or kana:
        counts["cjk"] = han + (kana + 1) // 2
    script = max(counts, key=lambda name: (counts[name], name))
    if script == "cjk":
        return _chinese_or_japanese(text, han, kana)
    return _within(script, text)


def _chinese_or_japanese(text: str, han: int, kana: int) -> str:
    if kana > 1 and kana * 12 >= han:
        return "ja"
    if kana and kana * 5 >= han:
        return "ja"  # one kana in a short text; in a long Chinese one it is a の in a brand
    return "ja" if not _JAPANESE_ONLY.isdisjoint(text) else "zh"


def _within(script: str, text: str) -> str:
    lowered = text.lower()
    if script == "latin":
        return _latin(lowered)
    if script == "cyrillic":
        return _by_letter(lowered, _CYRILLIC, "ru")
    if script == "arabic":
        return _by_letter(lowered, _ARABIC, "ar")
    return "hi" if script == "devanagari" else script


def _by_letter(text: str, table: tuple[tuple[str, str], ...], otherwise: str) -> str:
    letters = frozenset(text)
    for code, telling in table:
        if not letters.isdisjoint(telling):
            return code
    return otherwise


def _latin(text: str) -> str:
    """Votes of small words, then letters; English where nothing speaks against it."""
    votes: dict[str, int] = {}
    for word in _LATIN_WORD.findall(text.lower()):
        for code in _VOTES.get(word, ()):
            votes[code] = votes.get(code, 0) + 1
    if not text.isascii():
        code = _by_letter(text, _LATIN, "")
        if code:
            votes[code] = votes.get(code, 0) + 2
    best = max(votes.values(), default=0)
    if votes.get("en", 0) == best:
        return "en"
    return min(code for code, count in votes.items() if count == best)
