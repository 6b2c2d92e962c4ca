"""Language by letters: a table, and that nothing makes it raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrubjay.text.language import detect

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "und"),
        (" \n12:30 — 50% !!", "und"),
        ("🎉🎉", "und"),
        ("\ud800\0", "und"),
        ("Where did I put the keys?", "en"),
        ("OK", "en"),
        ("naïve café", "en"),
        ("def run(self): return self.x", "en"),
        ("ｈｅｌｌｏ", "en"),
        ("The word 灌溉 means irrigation in English", "en"),
        ("我的钥匙在哪儿", "zh"),
        ("訂單號碼與付款方式", "zh"),
        ("请帮我review一下这个PR", "zh"),
        ("订单号 20260309A17 退款中。", "zh"),
        ("猫", "zh"),
        ("我喜欢喝鲜の每日牛奶", "zh"),
        ("昨日は折り紙教室に通った", "ja"),
        ("昨日の会議", "ja"),
        ("コンピューター", "ja"),
        ("ｺﾝﾋﾟｭｰﾀ", "ja"),
        ("東京駅", "ja"),
        ("어제 도자기 수업을 들었다", "ko"),
        ("Где мои ключи?", "ru"),
        ("Де мої ключі?", "uk"),
        ("أين مفاتيحي؟", "ar"),
        ("کلیدهای من کجاست", "fa"),
        ("ฉันเรียนภาษาไทย", "th"),
        ("मैं हिन्दी बोलता हूँ", "hi"),
        ("Πού είναι τα κλειδιά μου", "el"),
        ("איפה המפתחות שלי", "he"),
        ("Hola, ¿dónde están mis llaves?", "es"),
        ("Où sont les clés de la maison ?", "fr"),
        ("Wo sind meine Schlüssel, ich finde sie nicht", "de"),
        ("Tôi không biết chìa khóa ở đâu", "vi"),
        ("Saya tidak tahu di mana kunci itu", "id"),
    ],
)
def test_detect(text: str, code: str) -> None:
    assert detect(text) == code


@given(ANY_TEXT)
def test_never_raises_and_gives_a_code(text: str) -> None:
    code = detect(text)
    assert code == "und" or (len(code) == 2 and code.isascii() and code.islower())


@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5), min_size=1))
def test_han_alone_is_chinese_or_japanese(text: str) -> None:
    assert detect(text) in ("zh", "ja")


def test_only_the_beginning_is_read() -> None:
    assert detect("word " * 1_000 + "我的钥匙" * 10_000) == "en"
