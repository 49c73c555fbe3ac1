"""Settings: documented defaults, and one clear line for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit.domain.tokens import make_token
from orbit.runtime.setting_values import Address, parse_address
from orbit.runtime.settings import Settings, SettingsError, load_settings
from orbit.runtime.variables import VARIABLES

ROOT = Path(__file__).parents[3]


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    settings = load_settings({})
    assert str(settings.http_addr) == "127.0.0.1:8080"
    assert str(settings.dispatch_addr) == "127.0.0.1:8081"
    assert settings.url == "http://127.0.0.1:8080"
    assert settings.home == Path(".orbit")
    assert (settings.lease_ms, settings.renew_ms) == (30_000, 10_000)
    assert (settings.log_format, settings.log_level) == ("console", "info")
    assert settings.retention_days == 30
    unset = (
        settings.mysql_dsn,
        settings.token,
        settings.metrics_addr,
        settings.dispatch_url,
        settings.tls_key,
    )
    assert unset == (None,) * len(unset)
    assert settings.warnings == ()


def test_empty_values_count_as_unset() -> None:
    assert load_settings(dict.fromkeys(VARIABLES, "")) == load_settings({})


def test_the_document_lists_every_variable_with_its_default_and_range() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `ORBIT_")]
    assert rows == [
        f"| `{name}` | {f'`{told.default}`' if told.default else '—'} | {told.values} | {told.meaning} |"
        for name, told in VARIABLES.items()
    ]


def test_every_documented_variable_is_read() -> None:
    class Recorder(dict[str, str]):
        asked: set[str] = set()

        def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
            self.asked.add(key)
            return super().get(key, default)

    load_settings(Recorder())
    assert Recorder.asked == set(VARIABLES)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ORBIT_MYSQL_DSN", "postgres://u:hunter2@h/d", "mysql://"),
        ("ORBIT_MYSQL_DSN", "mysql://u:hunter2@h:port/d", "malformed"),
        ("ORBIT_HTTP_ADDR", "8080", "host:port"),
        ("ORBIT_HTTP_ADDR", ":8080", "host:port"),
        ("ORBIT_HTTP_ADDR", "::1:8080", "brackets"),
        ("ORBIT_HTTP_ADDR", "127.0.0.1:65536", "65535"),
        ("ORBIT_HTTP_ADDR", "127.0.0.1:-1", "65535"),
        ("ORBIT_HTTP_ADDR", "127.0.0.1:٣", "65535"),
        ("ORBIT_DISPATCH_ADDR", "127.0.0.1:", "65535"),
        ("ORBIT_DISPATCH_URL", "http://h:1", "ws://"),
        ("ORBIT_DISPATCH_URL", "ws://", "ws://"),
        ("ORBIT_HINT_ADDR", "0.0.0.0:9000", "wildcard"),
        ("ORBIT_HINT_ADDR", "[::]:9000", "wildcard"),
        ("ORBIT_HINT_ADDR", "node-1:9000", "IP address"),
        ("ORBIT_METRICS_ADDR", "x", "host:port"),
        ("ORBIT_LEASE_MS", "1999", "2000 to 600000"),
        ("ORBIT_LEASE_MS", "600001", "2000 to 600000"),
        ("ORBIT_LEASE_MS", "30s", "2000 to 600000"),
        ("ORBIT_LEASE_MS", "9" * 5_000, "2000 to 600000"),
        ("ORBIT_RETENTION_DAYS", "29", "30 to 3650"),
        ("ORBIT_RETENTION_DAYS", "-1", "30 to 3650"),
        ("ORBIT_LOG_FORMAT", "JSON", "console or json"),
        ("ORBIT_LOG_LEVEL", "trace", "debug, info, warning or error"),
        ("ORBIT_TLS_CERT", "/no/such/file", "cannot be read"),
        ("ORBIT_URL", "127.0.0.1:8080", "http://"),
        ("ORBIT_URL", "http://u:hunter2@h", "user or password"),
        ("ORBIT_URL", "http://h:99999999", "http://"),
        ("ORBIT_TOKEN", "hunter2", "token"),
        ("ORBIT_WORKER_URL", "wss://h/x?y=1", "ws://"),
    ],
)
def test_an_invalid_value_is_one_line_that_names_the_variable(name: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({name: value})
    line = str(caught.value)
    assert line.startswith(f"{name}: ")
    assert says in line
    assert "\n" not in line
    assert "hunter2" not in line
    assert len(line) < 200


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", Address(host="127.0.0.1", port=0)),
        ("[::1]:8080", Address(host="::1", port=8080)),
        ("example.org:443", Address(host="example.org", port=443)),
    ],
)
def test_addresses_read_back(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


def test_certificate_and_key_come_together(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.write_text("x", encoding="ascii")
    with pytest.raises(SettingsError, match=r"^ORBIT_TLS_KEY: "):
        load_settings({"ORBIT_TLS_CERT": str(pem)})
    with pytest.raises(SettingsError, match=r"^ORBIT_TLS_CERT: "):
        load_settings({"ORBIT_TLS_KEY": str(pem)})
    both = load_settings({"ORBIT_TLS_CERT": str(pem), "ORBIT_TLS_KEY": str(pem)})
    assert both.tls_cert == both.tls_key == pem
    assert both.advertised_dispatch_url(8081) == "wss://127.0.0.1:8081"


def test_an_unknown_variable_is_a_warning_with_the_likely_name() -> None:
    settings = load_settings({"ORBIT_LEASE_MSEC": "1", "ORBIT_ZZZ": "1", "OTHER": "1"})
    assert settings.warnings == (
        "ORBIT_LEASE_MSEC: unknown variable; did you mean ORBIT_LEASE_MS?",
        "ORBIT_ZZZ: unknown variable",
    )


def test_a_wildcard_dispatcher_without_a_url_is_a_warning() -> None:
    settings = load_settings({"ORBIT_DISPATCH_ADDR": "0.0.0.0:8081"})
    assert [line.split(":")[0] for line in settings.warnings] == ["ORBIT_DISPATCH_URL"]
    assert settings.advertised_dispatch_url(8081) == "ws://127.0.0.1:8081"
    named = load_settings({"ORBIT_DISPATCH_ADDR": "[::]:8081", "ORBIT_DISPATCH_URL": "wss://orbit.example/"})
    assert named.warnings == ()
    assert named.advertised_dispatch_url(8081) == "wss://orbit.example"


def test_the_advertised_url_carries_the_port_that_was_bound() -> None:
    settings = load_settings({"ORBIT_DISPATCH_ADDR": "[::1]:0"})
    assert settings.advertised_dispatch_url(40_001) == "ws://[::1]:40001"


def test_a_process_that_needs_the_database_says_so() -> None:
    with pytest.raises(SettingsError, match=r"^ORBIT_MYSQL_DSN: must be set"):
        load_settings({}).need_dsn()
    assert load_settings({"ORBIT_MYSQL_DSN": "mysql://u:p@h/d"}).need_dsn().database == "d"


def test_the_text_of_settings_holds_no_secret() -> None:
    _, token, _ = make_token()
    settings: Settings = load_settings({"ORBIT_MYSQL_DSN": "mysql://u:hunter2@h/d", "ORBIT_TOKEN": token})
    assert settings.token == token
    assert "hunter2" not in repr(settings)
    assert token not in repr(settings)
