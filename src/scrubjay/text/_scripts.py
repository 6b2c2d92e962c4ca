"""What the tokeniser knows of each script: ranges, folding, stems, dictionaries, stop words.

The contract: pure functions; the stemmer, the dictionary and the conversion table are loaded by
the first call that needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from unicodedata import normalize

from scrubjay.forks import ForkLock

IDENTIFIER = "="
CHARACTER = "~"

# Ranges for regular expressions. Marks belong to their letters (Python's \w leaves them out) and
# punctuation inside a block does not.
HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
KANA = "\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
HANGUL = "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
CJK = HAN + KANA + HANGUL + "\u3105-\u312f\u31a0-\u31bf"
UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"  # Thai, Lao
    "\u0f40-\u0fbc\u1000-\u1049\u1050-\u109f\u1780-\u17d3"  # Tibetan, Burmese, Khmer
)
EMOJI = "\u2600-\u27bf\U0001f300-\U0001faff"
LATIN = "\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0300-\u036f\u1e00-\u1eff\ua720-\ua7ff"
GREEK = "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u03ff\u1f00-\u1fff"
CYRILLIC = "\u0400-\u052f\u1c80-\u1c88\u2de0-\u2dff\ua640-\ua69f"
HEBREW = "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u05d0-\u05f2"
ARABIC = (
    "\u0610-\u061a\u0620-\u065f\u066e-\u06d3\u06d5-\u06dc\u06df-\u06ff\u0750-\u077f\u08a0-\u08ff"
)
INDIC = "\u0900-\u0963\u0971-\u0df3"
OTHER = (
    "\u0531-\u0556\u0560-\u0588\u10a0-\u10fa\u10fc-\u10ff\u2d00-\u2d2d"  # Armenian, Georgian
    "\u1200-\u135f\u2d30-\u2d7f\u13a0-\u13ff\u1400-\u166c\u1820-\u18aa"
)
LETTERS = LATIN + GREEK + CYRILLIC + HEBREW + ARABIC + INDIC + OTHER

# Accents, Hebrew points, Arabic harakat and tatweel. Indic vowel signs are not accents: they stay.
_MARKS = re.compile(
    "[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]+"
)
_IS_CYRILLIC = re.compile("[\u0400-\u052f]")
_IS_ARABIC = re.compile("[\u0620-\u06ff]")
_IS_OTHER = re.compile("[\u0370-\u03ff\u0590-\u05ff\u0900-\u1dff]")
# Letters whose decomposition does not hold the plain letter people type instead.
_PLAIN = str.maketrans(
    {"đ": "d", "ø": "o", "ł": "l", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ð": "d", "ħ": "h"}
    | {"ٱ": "ا", "ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه", "ں": "ن"}
)
# Traditional characters a converter leaves alone because their reading decides; for matching
# the commoner simplified form stands for both.
_VARIANTS = {"著": "着", "瞭": "了", "藉": "借", "乾": "干", "妳": "你", "祇": "只", "甚": "什"}

PARTICLES = frozenset(
    "的了吗呢吧啊呀哦嘛么着过地得是在我你您他她它们这那哪谁和与或及也都就还又很被把给让对从到于而但之其"
    "有没不请问个はがをにでとのもへやかよねだ"
)
_ENGLISH_STOP_WORDS = """
a an the and or but if of at by for with about to from in on as is are was were be been am do does
did have has had i me my we our you your he him his she her it its they them their this that these
those what which who whom when where why how can could will would shall should may might must there
here so than then too very just also any some please tell
"""
_CJK_STOP_WORDS = """
什么 怎么 怎样 如何 哪里 哪些 哪个 哪儿 谁的 我们 你们 他们 她们 它们 咱们 自己 这个 那个 这些
那些 这里 那里 这样 那样 是否 可以 能否 为什么 因为 所以 但是 如果 以及 一个 一下 请问 告诉 有没有
是不是 です ます した して する から まで こと もの これ それ あれ
"""


def fold(text: str) -> str:
    """Fold case and diacritics of a text without CJK.

    >>> fold("CAFÉ"), fold("Ελλάς"), fold("كِتَابٌ"), fold("Łódź")
    ('cafe', 'ελλασ', 'كتاب', 'lodz')
    """
    if text.isascii():
        return text.lower()
    text = _MARKS.sub("", normalize("NFD", normalize("NFKC", text).casefold()))
    return normalize("NFC", text.translate(_PLAIN))


def forms(word: str) -> list[str]:
    """The tokens of one word of letters: folded, stemmed where a stemmer knows the language.

    Latin words are stemmed as English and Cyrillic as Russian (Porter's Snowball); the same word
    meets the same stem in the index and in the query, whatever its language. Arabic gains a form
    without its article (light stemming: Larkey, Ballesteros and Connell, SIGIR 2002).

    >>> forms("Memories"), forms("книги"), forms("الكتاب")
    (['memori'], ['книг'], ['الكتاب', 'كتاب'])
    """
    if word.isascii():
        if word[-1:] == "s" and word[:-1].isupper():
            word = word[:-1]  # `PDFs`: the stemmer wants a vowel
        return [_stemmer("english")(word.lower())]
    if _IS_CYRILLIC.search(word):
        # й is a letter and not an accented и, and the stemmer's endings need it.
        word = normalize("NFKC", word).casefold().replace("ё", "е")
        return [_stemmer("russian")(normalize("NFC", word.replace("\u0301", "")))]
    folded = fold(word)
    if not folded:
        return []
    if _IS_ARABIC.search(folded):
        bare = re.sub("^(?:[وبكف]?ال|لل)", "", folded)
        return [folded, bare] if 2 < len(bare) < len(folded) else [folded]
    if _IS_OTHER.search(folded):
        return [folded]
    return [_stemmer("english")(folded)]


_IMPORTING = ForkLock()  # a fork in the middle of an import would leave it half done for ever


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    with _IMPORTING:
        import Stemmer  # type: ignore[import-not-found]

    stem: Callable[[str], str] = Stemmer.Stemmer(language, 0).stemWord
    return stem


class _Simplified(dict[int, str]):
    """A table for `str.translate` that asks the converter once for each character it meets."""

    def __init__(self) -> None:
        with _IMPORTING:
            from opencc import OpenCC

        super().__init__({ord(a): b for a, b in _VARIANTS.items()})
        self._convert: Callable[[str], str] = OpenCC("t2s").convert

    def __missing__(self, code: int) -> str:
        # Below the ideographs and among the surrogates there is nothing to convert.
        char = chr(code)
        if 0x3400 <= code < 0xD800 or code >= 0x20000:
            char = self._convert(char)
        self[code] = char
        return char


@cache
def simplified() -> dict[int, str]:
    """The table from traditional to simplified characters, for `str.translate`.

    Character by character and not by phrase: index and query then agree wherever a phrase is cut.

    >>> "臺灣圖書館裡看著".translate(simplified())
    '台湾图书馆里看着'
    """
    return _Simplified()


@cache
def stop_words() -> frozenset[str]:
    """English stop words as they are stemmed, and Chinese and Japanese ones.

    >>> {"this", "什么"} <= stop_words()
    True
    """
    english = (form for word in _ENGLISH_STOP_WORDS.split() for form in forms(word))
    return frozenset(english) | frozenset(_CJK_STOP_WORDS.split())


@cache
def _jieba_all() -> Callable[[str], list[str]]:
    with _IMPORTING:
        import rjieba

        rjieba.cut_all("词")  # the dictionary is read at the first use

    return rjieba.cut_all


def dictionary_words(run: str) -> list[str]:
    """Every word of the dictionary anywhere in a run of CJK, overlapping ones too.

    >>> [word for word in dictionary_words("南京市长江大桥") if len(word) > 2]
    ['南京市', '长江大桥']
    """
    return _jieba_all()(run)


def segmented(run: str) -> list[str]:
    """A run of CJK cut into words, each character in exactly one.

    >>> segmented("我的灌溉计划")
    ['我', '的', '灌溉', '计划']
    """
    _jieba_all()
    import rjieba

    return rjieba.cut(run, True)
