//! `sluice login`: writes the context file of a cluster, after the cluster has confirmed the caller's identity.

use std::io::Read;
use std::path::{Path, PathBuf};

use sluice_common::api::WhoAmIView;

use crate::args::LoginArgs;
use crate::client::Client;
use crate::context::{self, Context, ContextFile, NamedContexts};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::safe;

/// Longest token: an issuer's may be some kB.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;

pub(crate) fn run(chosen: Option<&Path>, args: &LoginArgs, out: Out) -> Result<u8, Failure> {
    let (name, path) = target(chosen, args.name.as_deref())?;
    let file = ContextFile {
        http: args.address.clone(),
        token: args.token_file.as_deref().map(token).transpose()?,
        ca: readable("--ca", args.ca.as_deref())?,
        cert: readable("--cert", args.cert.as_deref())?,
        key: readable("--key", args.key.as_deref())?,
        subject: args.subject.clone(),
        ..ContextFile::default()
    };
    if file.is_secret() && file.ca.is_none() {
        return Err(Failure::Usage(NO_AUTHORITY.to_owned()));
    }
    let draft = Context {
        path: path.clone(),
        file: file.clone(),
    };
    let who = Client::new(draft)?.whoami()?;
    let file = ContextFile {
        pool: only_pool(&who),
        ..file
    };
    let written = file.write(&path);
    written.map_err(|e| Failure::Failed(format!("cannot write {}: {e}", path.display())))?;
    let (shown, who) = (safe(&path.to_string_lossy()), safe(&who.who));
    match name {
        Some(name) => {
            super::context::choose(&NamedContexts::of_user()?, &name)?;
            let name = safe(&name);
            out.progress(&format!(
                "context/{name} written and in use ({shown}): you are {who}"
            ));
            if args.name.is_some() {
                super::context::tell_override(chosen, out);
            }
        }
        None => out.progress(&format!("{shown} written: you are {who}")),
    }
    Ok(0)
}

/// Message for an address with TLS and no authority to know it by.
const NO_AUTHORITY: &str = "--ca: an https address needs the file with the authority of the coordinator's certificate: \
                            it is `tls/ca.pem` in the data directory on the coordinator's host";

/// Returns the context to be written, by its name if it has one, and its file.
fn target(chosen: Option<&Path>, name: Option<&str>) -> Result<(Option<String>, PathBuf), Failure> {
    let name = match (name, chosen) {
        (Some(name), _) => name,
        (None, Some(path)) => match context::as_name(path).filter(|_| !path.exists()) {
            Some(name) => {
                let checked = context::check_name(name);
                checked.map_err(|e| Failure::Usage(format!("--context: {e}")))?;
                name
            }
            None => return Ok((None, path.to_owned())),
        },
        (None, None) => context::DEFAULT,
    };
    let path = NamedContexts::of_user()?.path(name);
    Ok((Some(name.to_owned()), path))
}

/// Returns the pool that every right of the caller is limited to, if it is one.
fn only_pool(who: &WhoAmIView) -> Option<String> {
    let mut pools = who.grants.iter().map(|grant| match &grant.pools[..] {
        [only] => Some(only.to_string()).filter(|name| !name.contains('*')),
        _ => None,
    });
    let first = pools.next()??;
    let is_only = pools.all(|pool| pool.as_ref() == Some(&first));
    (is_only && !who.unbounded).then_some(first)
}

/// Makes the path of a file absolute that must be readable.
fn readable(flag: &str, file: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let failed = |e| Failure::Usage(format!("{flag}: cannot read {}: {e}", file.display()));
    std::fs::File::open(file).map_err(failed)?;
    std::path::absolute(file).map(Some).map_err(failed)
}

/// Reads a token from a file, or from standard input if `-`: every user of the machine can read arguments.
fn token(file: &Path) -> Result<String, Failure> {
    let read = || {
        let mut text = String::new();
        if file == Path::new("-") {
            let stdin = std::io::stdin().lock();
            stdin.take(MAX_TOKEN_BYTES).read_to_string(&mut text)?;
        } else {
            let opened = std::fs::File::open(file)?;
            opened.take(MAX_TOKEN_BYTES).read_to_string(&mut text)?;
        }
        Ok::<_, std::io::Error>(text.trim().to_owned())
    };
    read().map_err(|e| Failure::Failed(format!("cannot read {}: {e}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_for_one_pool_submits_to_it() {
        let pool = |unbounded: bool, grants: serde_json::Value| {
            let who = serde_json::json!({
                "who": "token/ci", "name": "ci", "unbounded": unbounded, "grants": grants, "expires_at": null,
            });
            only_pool(&serde_json::from_value(who).unwrap())
        };
        let submitter = serde_json::json!({"role": "submitter", "pools": ["training"]});
        let viewer = serde_json::json!({"role": "viewer"});
        let some = Some("training".to_owned());
        assert_eq!(pool(false, serde_json::json!([submitter, submitter])), some);
        assert_eq!(pool(true, serde_json::json!([submitter])), None);
        assert_eq!(pool(false, serde_json::json!([submitter, viewer])), None);
        assert_eq!(
            pool(
                false,
                serde_json::json!([{"role": "submitter", "pools": ["train-*"]}])
            ),
            None
        );
        assert_eq!(pool(false, serde_json::json!([])), None);
    }
}
