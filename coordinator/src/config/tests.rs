//! Every way in which a config can be invalid; the messages must say how to fix it.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn parse(text: &str) -> Result<RawConfig, ConfigError> {
    RawConfig::parse(Path::new("coordinator.toml"), text)
}

fn check(text: &str) -> Result<Config, ConfigError> {
    parse(text)?.check(Overrides::default())
}

fn refusal(text: &str) -> String {
    check(text).unwrap_err().to_string()
}

#[test]
fn an_empty_file_is_a_whole_config_on_loopback() {
    let config = check("").unwrap();
    assert_eq!(config.http.to_string(), DEFAULT_HTTP);
    assert_eq!(config.quic.to_string(), DEFAULT_QUIC);
    assert_eq!(config.settings.lost_after, DEFAULT_LOST_AFTER);
    assert_eq!(config.retention, DEFAULT_RETENTION);
    assert!(config.tls.is_none() && config.api_token.is_none());
}

#[test]
fn openness_is_said_in_so_many_words_and_contradicts_what_asks_for_tokens() {
    assert!(!check("").unwrap().open_to_all_local_users);
    let open = "open_to_all_local_users = true\n";
    assert!(check(open).unwrap().open_to_all_local_users);
    let beyond = refusal(&format!("{open}http = \"0.0.0.0:7070\""));
    assert!(beyond.contains("other machines"), "{beyond}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    sluice_transport::files::write_private(&file, "correct-horse-battery").unwrap();
    let both = refusal(&format!("{open}api_token_file = {file:?}"));
    assert!(both.contains("remove one"), "{both}");
}

#[test]
fn flags_override_the_file() {
    let flags = Overrides {
        http: Some("127.0.0.1:0".to_owned()),
        lease: Some("1m".to_owned()),
        ..Overrides::default()
    };
    let config = parse("http = \"127.0.0.1:9\"\nlease = \"2m\"\nheartbeat = \"1s\"")
        .unwrap()
        .check(flags)
        .unwrap();
    assert_eq!(config.http.port(), 0);
    assert_eq!(config.settings.lease, Span::from_secs(60));
    assert_eq!(config.settings.heartbeat, Span::from_secs(1));
}

#[test]
fn a_slip_in_a_key_names_key_file_line_and_the_nearest_one() {
    let message = refusal("http = \"127.0.0.1:1\"\nleese = \"5m\"");
    assert_eq!(
        message,
        "coordinator.toml: line 2: unknown key `leese`: did you mean `lease`?"
    );
    let message = refusal("[tls]\nca = \"a\"\ncret = \"b\"");
    assert!(
        message.contains("line 3") && message.contains("`cert`"),
        "{message}"
    );
    let message = refusal("retention = \"many\"");
    assert!(message.contains("line 1"), "{message}");
    assert!(refusal("lease = ").contains("line 1"));
}

#[test]
fn a_value_of_the_wrong_kind_is_shown_with_its_key() {
    for (text, shown) in [
        (
            "lease = \"5m\"\n quic = 5",
            "line 2: `quic = 5`: invalid type: integer",
        ),
        ("retention = -1", "line 1: `retention = -1`: "),
        ("[[", "line 1: `[[`: "),
    ] {
        let message = refusal(text);
        assert!(message.contains(shown), "{shown} in {message}");
    }
}

#[test]
fn a_loss_that_is_declared_too_early_is_refused_with_all_numbers() {
    let message = refusal("lease = \"5m\"\nstop_limit = \"30s\"\nlost_after = \"5m\"");
    for number in [
        "lost_after: 5m ",
        "at least 5m50s",
        "lease 5m",
        "stop_limit 30s",
        "10s",
    ] {
        assert!(message.contains(number), "{number} in {message}");
    }
    assert!(check("lost_after = \"5m50s\"").is_ok());
}

#[test]
fn terms_that_contradict_each_other_are_refused() {
    for (text, key) in [
        ("heartbeat = \"20s\"", "unreachable_after"),
        ("unreachable_after = \"1h\"", "unreachable_after"),
        ("unreachable_after = \"5s\"", "unreachable_after"),
        ("lease = \"2s\"", "lease"),
        ("lease = \"5999ms\"", "lease"),
        ("lease = \"5\"", "lease"),
        ("lease = \"0s\"", "lease"),
        ("http = \"localhost\"", "http"),
        ("quic = \"127.0.0.1\"", "quic"),
    ] {
        let message = refusal(text);
        assert!(
            message.starts_with(&format!("{key}: ")),
            "{text}: {message}"
        );
    }
}

#[test]
fn only_loopback_without_certificates_and_no_open_api() {
    assert!(refusal("quic = \"0.0.0.0:7443\"").contains("`tls`"));
    let tls = "[tls]\nca = \"ca\"\ncert = \"cert\"\nkey = \"key\"";
    assert!(check(&format!("quic = \"0.0.0.0:7443\"\n{tls}")).is_ok());
    let open = refusal(&format!("http = \"0.0.0.0:7070\"\n{tls}"));
    assert!(open.contains("`api_token_file`"), "{open}");
}

#[test]
fn the_api_is_in_the_clear_on_loopback_alone() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    sluice_transport::files::write_private(&token, "0123456789abcdef").unwrap();
    let open = check(&format!("http = \"[::]:7070\"\napi_token_file = {token:?}")).unwrap();
    let cluster = |names: &[&str]| HttpTls::Cluster {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    assert_eq!(open.http_tls, Some(cluster(&[])));
    assert_eq!(check("").unwrap().http_tls, None);
    let named = check("[http_tls]\nnames = [\"a\"]").unwrap();
    assert_eq!(named.http_tls, Some(cluster(&["a"])));
    for (text, words) in [
        ("cert = \"a\"", "both `cert` and `key`"),
        ("users_ca = \"a\"", "beside `cert` and `key`"),
        (
            "cert = \"a\"\nkey = \"b\"\nnames = [\"c\"]",
            "has its names already",
        ),
    ] {
        let message = refusal(&format!("[http_tls]\n{text}"));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_token_file_holds_one_long_word_that_is_never_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let config = |text: &str| {
        sluice_transport::files::write_private(&path, text).unwrap();
        check(&format!("api_token_file = {path:?}"))
    };
    let config_ok = config("0123456789abcdef\n").unwrap();
    assert_eq!(
        config_ok.api_token.as_ref().unwrap().as_bytes(),
        b"0123456789abcdef"
    );
    assert!(!format!("{config_ok:?}").contains("0123456789abcdef"));
    for text in ["", "short", "two words that are long enough"] {
        let message = config(text).unwrap_err().to_string();
        assert!(message.contains("at least 16"), "{message}");
    }
    fs::write(&path, "0123456789abcdef").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let message = check(&format!("api_token_file = {path:?}")).unwrap_err();
    assert!(message.to_string().contains("chmod 600"), "{message}");
    assert!(refusal("api_token_file = \"/nowhere/token\"").contains("/nowhere/token"));
}

#[test]
fn the_config_that_is_shipped_is_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/config/coordinator.toml");
    let raw = RawConfig::load(&path).unwrap();
    assert!(raw.data_dir.is_none() && raw.tls.is_none());
    let dir = tempfile::tempdir().unwrap();
    let overrides = Overrides {
        data_dir: Some(dir.path().to_owned()),
        ..Overrides::default()
    };
    // It listens for hosts, which is allowed once there are certificates.
    let error = raw.clone().check(overrides.clone()).unwrap_err();
    assert!(
        error.to_string().contains("`sluice-coordinator init`"),
        "{error}"
    );
    crate::identity::init(dir.path()).unwrap();
    let config = raw.check(overrides).unwrap();
    assert!(!config.quic.ip().is_loopback());
    assert_eq!(config.cert_ttl, DEFAULT_CERT_TTL);
}
