"""A token is accepted exactly as long as its signature, its time and the password of its user allow it."""

from __future__ import annotations

import pytest

from penstock.core.errors import BadToken, OutOfRange
from penstock.node.caller import ADMIN, EVERYTHING, READ, WRITE
from penstock.server.net.access import Account, Accounts
from penstock.server.net.tokens import TOKEN_BYTES_MAX, Token, Tokens

SECRET = b"of the cluster"


def users(password: bytes = b"digest", tubes: tuple[bytes, ...] = (b"mail.*",)) -> Accounts:
    accounts = Accounts()
    accounts.add("alice", password, ["read", "write"], tubes)
    accounts.add("bob", password, ["read"], [b"*"])
    return accounts


def user(accounts: Accounts, name: str = "alice") -> Account:
    found = accounts.find(name)
    assert found is not None
    return found


def read(tokens: Tokens, text: bytes) -> Token:
    token = tokens.read(text)
    assert token is not None
    return token


def test_a_token_has_the_rights_that_both_it_and_its_user_have() -> None:
    accounts = users()
    tokens = Tokens(SECRET, accounts)
    text = tokens.create(user(accounts), 100, READ | ADMIN, (b"mail.in", b"news", b"*"), "ci")
    account = tokens.account(read(tokens, text), 99)
    assert (account.name, account.token_name, account.expires_ms) == ("alice", "ci", 100)
    assert account.groups == READ
    assert set(account.tubes.texts) == {b"mail.in", b"mail.*"}
    assert accounts.admits(account)


def test_a_token_without_limits_follows_the_rights_of_its_user() -> None:
    accounts = users()
    tokens = Tokens(SECRET, accounts)
    text = tokens.create(user(accounts), 100, EVERYTHING, None, "")
    account = tokens.account(read(tokens, text), 0)
    assert account.groups == READ | WRITE
    accounts.grant("alice", b"granted", True)
    assert account.tubes.match(b"granted") and b"granted" in account.truncates


def test_names_and_patterns_may_have_any_bytes() -> None:
    accounts = Accounts()
    accounts.add("jürgen", b"digest", ["read"], [b"*"])
    tokens = Tokens(SECRET, accounts)
    pattern = bytes(range(256))
    token = read(tokens, tokens.create(user(accounts, "jürgen"), 1, READ, (pattern,), "ä"))
    assert (token.user, token.tubes, token.name) == ("jürgen", (pattern,), "ä")


def test_a_token_with_one_changed_byte_is_no_token() -> None:
    accounts = users()
    tokens = Tokens(SECRET, accounts)
    text = tokens.create(user(accounts), 100, READ, (b"mail.in",), "ci")
    for at in range(len(text)):
        changed = text[:at] + (b"A" if text[at : at + 1] != b"A" else b"B") + text[at + 1 :]
        assert tokens.read(changed) is None
    for other in (b"", b"pst1.", b"pst1..", text + b"=", text[:-1], text.upper(), b"pst1." + b"x" * 5_000):
        assert tokens.read(other) is None


def test_a_token_expires_at_its_time() -> None:
    accounts = users()
    tokens = Tokens(SECRET, accounts)
    token = read(tokens, tokens.create(user(accounts), 100, READ, None, ""))
    tokens.account(token, 99)
    with pytest.raises(BadToken, match="expired"):
        tokens.account(token, 100)


def test_a_new_password_or_a_removed_user_revokes_tokens() -> None:
    text = Tokens(SECRET, users()).create(user(users()), 100, READ, None, "")
    for accounts in (users(b"another"), Accounts()):
        tokens = Tokens(SECRET, accounts)
        with pytest.raises(BadToken, match="revoked"):
            tokens.account(read(tokens, text), 0)


def test_servers_with_one_secret_accept_the_tokens_of_each_other_and_others_do_not() -> None:
    text = Tokens(SECRET, users()).create(user(users()), 100, READ, None, "")
    assert Tokens(SECRET, users()).read(text) is not None
    assert Tokens(b"another secret", users()).read(text) is None


def test_the_token_of_one_user_does_not_contain_the_fingerprint_of_another() -> None:
    accounts = users()
    tokens = Tokens(SECRET, accounts)
    found = [read(tokens, tokens.create(user(accounts, name), 1, READ, None, "")) for name in ("alice", "bob")]
    assert found[0].fingerprint != found[1].fingerprint


def test_a_token_fits_in_a_cookie() -> None:
    accounts = users()
    tokens = Tokens(SECRET, accounts)
    with pytest.raises(OutOfRange, match=f"{TOKEN_BYTES_MAX} bytes"):
        tokens.create(user(accounts), 1, READ, (b"mail." + b"x" * TOKEN_BYTES_MAX,), "")
