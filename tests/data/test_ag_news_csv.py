"""AG News's CSV: read exactly; what is wrong is named with its line."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oso_dp.data.ag_news_csv import parse_news, split_words
from oso_dp.errors import OsoError

GOOD = '"3","Oil at $46","Prices \\soar, ""again"""\n"1","","Peace\nin two lines"\n'
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def test_rows_are_read_exactly():
    texts, classes = parse_news(GOOD.encode(), "x")
    assert texts == ['Oil at $46 Prices \\soar, "again"', " Peace\nin two lines"]
    assert classes.tolist() == [2, 0]


def test_words_are_runs_of_letters_and_digits_in_small_letters():
    assert split_words("Oil at $46: U.S. e-mails\\band CAFÉ") == [
        *("oil", "at", "46", "u", "s", "e", "mails", "band", "caf")
    ]


def test_a_word_may_have_letters_and_digits_and_nothing_else():
    assert split_words("MP3s: don't, 1st-rate &lt;b&gt; #39;s q3_x") == [
        *("mp3s", "don", "t", "1st", "rate", "lt", "b", "gt", "39", "s", "q3", "x")
    ]


@given(rows=st.lists(st.tuples(st.sampled_from("1234"), TEXTS, TEXTS.map(lambda t: t + "a"))))
def test_what_was_written_is_read(rows):
    written = io.StringIO(newline="")
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows(rows)
    texts, classes = parse_news(written.getvalue().encode(), "x")
    assert texts == [f"{title} {description}" for _, title, description in rows]
    assert classes.tolist() == [int(row[0]) - 1 for row in rows]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('"3","no description"', "2 columns; must have class, title, description"),
        ('"3","a","b","c"', "4 columns"),
        ("", "0 columns"),
        ('"5","a","b"', "class '5'; must be 1 to 4"),
        ('"0","a","b"', "class '0'"),
        ('"","a","b"', "class ''"),
        ('"class","title","description"', "class 'class'"),
        ('"3","",""', "no words"),
        ('"3"," ","--- ..."', "no words"),
        ('"3","a","b', "unbalanced quotes"),
        ('"3","a,"b"', "unbalanced quotes"),
    ],
)
@pytest.mark.parametrize("before", ["", GOOD])
def test_a_bad_row_is_named_with_the_line_where_it_starts(row, message, before):
    content = f'{before}{row}\n"1","a","b"\n'.encode()
    line = before.count("\n") + 1
    with pytest.raises(OsoError) as caught:
        parse_news(content, "folder/train.csv")
    assert str(caught.value).startswith(f"folder/train.csv: line {line}: {message}")
    assert "\n" not in str(caught.value)


def test_another_encoding_is_named_with_its_line():
    with pytest.raises(OsoError, match=r"^x: line 4: not UTF-8"):
        parse_news(GOOD.encode() + '"2","Señor","b"\n'.encode("latin-1"), "x")
