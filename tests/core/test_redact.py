"""Credentials are removed from URLs, texts and errors. The rest stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.redact import Redactor, redact_text, redact_url
from forebay.sources.file_recipe import FileSourceRecipe
from forebay.sources.objects.stored_object import StoredObject

SECRETS = st.text("abcXYZ019-_.~+/=@%!:", min_size=8, max_size=40)
PATHS = st.text(st.characters(exclude_characters="?#"))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://me:pw@host/a.npy", "https://***@host/a.npy"),
        ("https://me:p@w@host/a.npy", "https://***@host/a.npy"),
        ("https://ghp_12345678@host/a.npy", "https://***@host/a.npy"),
        ("https://h/a?X-Amz-Signature=ab&x=1", "https://h/a?X-Amz-Signature=***&x=1"),
        (
            "https://h/a?X-Amz-Credential=ab%2Fc&X-Amz-Security-Token=d",
            "https://h/a?X-Amz-Credential=***&X-Amz-Security-Token=***",
        ),
        ("https://h/a?sv=1&sig=ab%3D", "https://h/a?sv=1&sig=***"),
        ("https://h/a?token=ab", "https://h/a?token=***"),
        (
            "https://h/a?password=ab&api_key=cd&AWSAccessKeyId=ef",
            "https://h/a?password=***&api_key=***&AWSAccessKeyId=***",
        ),
        ("https://h/a#access_token=ab", "https://h/a#access_token=***"),
        ("simplecache::https://me:pw@h/a", "simplecache::https://***@h/a"),
        ("s3://bucket/key=1/token=2/a.npy", "s3://bucket/key=1/token=2/a.npy"),
        ("s3://bucket/a@b.npy", "s3://bucket/a@b.npy"),
        ("s3://bucket/a.npy?versionId=5", "s3://bucket/a.npy?versionId=5"),
    ],
)
def test_urls_are_shown_without_credentials_and_with_their_path(url, expected):
    assert redact_url(url) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abcdefgh.ijk", "Authorization: Bearer ***"),
        ("headers: {'Authorization': 'Basic dTpw'}", "headers: {'Authorization': 'Basic ***'}"),
        ("options {'token': 'abc', 'anon': 'no'}", "options {'token': '***', 'anon': 'no'}"),
        ('{"secret_key": "abc"}', '{"secret_key": "***"}'),
        ("AccountName=a;AccountKey=abc==;x", "AccountName=a;AccountKey=***;x"),
        ("no access for AKIAABCDEFGHIJKLMNOP", "no access for ***"),
        ("invalid URL s3://key:se/cr/et@bucket/a", "invalid URL s3://***@bucket/a"),
        ("cannot read s3://bucket/keys/a.npy: no such key", "cannot read s3://bucket/keys/a.npy: no such key"),
    ],
)
def test_texts_are_shown_without_credentials(text, expected):
    assert redact_text(text) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"key": "AKIA123"},
        {"client_kwargs": {"aws_session_token": "AKIA123"}},
        {"client_kwargs": {"auth": ("me", "AKIA123")}},
        {"headers": {"X-Api-Key": b"AKIA123"}},
        {"token": {"private_key": "AKIA123"}},
        {"connection_string": "AKIA123"},
        {"proxy": "http://me:AKIA123@proxy"},
    ],
    ids=repr,
)
def test_secrets_of_options_are_removed(options):
    assert redact_text(Redactor(options)("failed with AKIA123")) == "failed with ***"


def test_a_short_secret_is_removed_only_as_a_word():
    assert Redactor({"password": "abc"})("abc is not abcdef") == "*** is not abcdef"


def test_the_password_of_a_url_is_removed_from_texts_without_the_url():
    redact = Redactor({}, ["s3://AKIA123:se/cret@bucket/a.npy?sig=xyzxyz"])
    assert redact("bad bucket name AKIA123:se/cret, signature xyzxyz, port se/cret") == (
        "bad bucket name ***, signature ***, port ***"
    )


@given(SECRETS)
def test_no_form_of_a_secret_is_left(secret):
    redact = Redactor({"secret": secret})
    for text in (secret, repr(secret), f"https://h/a?x={secret}", f"https://u:{secret}@h/"):
        assert secret not in redact(text)


@given(PATHS, PATHS)
def test_redacted_urls_differ_exactly_if_their_paths_differ(one, two):
    urls = [redact_url(f"https://me:pw@host/{path}") for path in (one, two)]
    assert (urls[0] == urls[1]) == (one == two)


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_a_secret_in_the_cause_of_an_error_is_detected(link):
    error = ValueError("plain")
    setattr(error, link, ValueError("with AKIA123 in it"))
    assert not Redactor({"key": "AKIA123"}).is_clean(error)
    assert Redactor({"key": "other"}).is_clean(error)


def test_a_secret_in_the_context_of_an_error_with_a_cause_is_detected():
    error, cause = ValueError("plain"), ValueError("plain")
    error.__cause__, error.__context__ = cause, ValueError("with AKIA123 in it")
    assert not Redactor({"key": "AKIA123"}).is_clean(error)


def test_a_secret_in_a_note_is_detected():
    error = ValueError("plain")
    error.add_note("with AKIA123 in it")
    assert not Redactor({"key": "AKIA123"}).is_clean(error)


@pytest.mark.long
@pytest.mark.parametrize("text", ["a" * 200_000, "://" * 70_000, "://a:" * 40_000, "key" * 70_000, "'key" * 50_000])
def test_a_long_text_is_not_redacted_in_quadratic_time(text):
    """A pattern with quadratic time would exceed the time limit of the tests."""
    assert redact_text(text) == text


def test_a_stored_object_is_shown_without_credentials():
    shown = StoredObject("https://***@h/a.npy", "https://me:pw@h/a.npy", 3, "")
    assert "pw" not in repr(shown)


def test_the_arguments_of_a_source_are_shown_without_credentials():
    recipe = FileSourceRecipe("https://me:pw@h/a.npy?sig=abc", None, {"storage_options": {"key": "AKIA123"}})
    assert repr(recipe) == "FileSourceRecipe(https://***@h/a.npy?sig=***)"
