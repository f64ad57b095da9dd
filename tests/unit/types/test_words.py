"""Words that every room uses."""

from edgeconv.types.words import first_line, listed, quoted, shortened


def test_a_list_names_what_fits_and_counts_the_rest():
    assert listed([]) == ""
    assert listed(["a", 2]) == "a, 2"
    assert listed("abc", most=3) == "a, b, c"
    assert listed(map(str, range(2_005)), most=2) == "0, 1 and 2,003 more"


def test_quoted_names_are_escaped():
    assert quoted(["a", "b\n"]) == "'a', 'b\\n'"
    assert quoted(["a", "b", "c"], most=1) == "'a' and 2 more"


def test_a_text_is_cut_only_where_it_is_too_long():
    assert shortened("x" * 200) == "x" * 200
    assert shortened("x" * 201) == "x" * 200 + "…"
    assert shortened("abc", most=2) == "ab…"


def test_the_first_line_is_the_first_that_is_not_blank():
    assert first_line("\n  \n  what failed \nwhere") == "what failed"
    assert first_line(ValueError("\nbad shape\nmore")) == "bad shape"
    assert first_line(KeyError()) == "KeyError"
    assert first_line("") == ""
    assert first_line("x" * 400) == "x" * 300 + "…"
