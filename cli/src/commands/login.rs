//! `sluice login`: writes the context file of a cluster, after the cluster has confirmed the caller's identity.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::args::LoginArgs;
use crate::client::Client;
use crate::context::{self, Context, ContextError, ContextFile};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::safe;

/// Longest token: an issuer's may be some kB.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;

pub(crate) fn run(chosen: Option<&Path>, args: &LoginArgs, out: Out) -> Result<u8, Failure> {
    let default = || context::default_path().ok_or(ContextError::NoHome);
    let path = chosen.map_or_else(default, |path| Ok(path.to_owned()))?;
    let file = ContextFile {
        http: args.address.clone(),
        token: args.token_file.as_deref().map(token).transpose()?,
        ca: args.ca.as_deref().map(absolute).transpose()?,
        cert: args.cert.as_deref().map(absolute).transpose()?,
        key: args.key.as_deref().map(absolute).transpose()?,
        subject: args.subject.clone(),
        ..ContextFile::default()
    };
    let draft = Context {
        path: path.clone(),
        file: file.clone(),
    };
    let who = Client::new(draft)?.whoami()?;
    let written = file.write(&path);
    written.map_err(|e| Failure::Failed(format!("cannot write {}: {e}", path.display())))?;
    let shown = safe(&path.to_string_lossy());
    out.progress(&format!("{shown} written: you are {}", safe(&who.who)));
    Ok(0)
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

fn absolute(file: &Path) -> Result<PathBuf, Failure> {
    let found = std::path::absolute(file);
    found.map_err(|e| Failure::Failed(format!("cannot find {}: {e}", file.display())))
}
