//! `--dry-run` of `run`, `submit` and `move step`: previews, with nothing stored. Each step is judged as if it were the only
//! one.

use sluice_common::api::{PreviewOutcome, PreviewView};
use sluice_common::request::StepRequest;

use super::outage_note;
use crate::client::{Client, RetryLimit};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::{render, show};

/// Previews each submit; fails if one would be rejected or refused.
pub(crate) fn run(client: &Client, requests: &[StepRequest], out: Out) -> Result<u8, Failure> {
    let previews = requests.iter().map(|request| {
        let ask = || client.preview(request);
        client.keep_trying(RetryLimit::CHANGE, outage_note(out), ask)
    });
    let previews: Vec<PreviewView> = previews.collect::<Result<_, _>>()?;
    let names = requests.iter();
    let names: Vec<_> = names
        .map(|it| it.name.as_deref().or(it.id.as_deref()))
        .collect();
    show(&names, &previews, out)
}

/// Prints previews, each with its name if there are several; fails if one of the steps would be rejected or refused.
pub(crate) fn show(
    names: &[Option<&str>],
    previews: &[PreviewView],
    out: Out,
) -> Result<u8, Failure> {
    match previews {
        [only] if !out.format().is_line_by_line() => show::value(only, out)?,
        several if !out.format().is_line_by_line() => show::items(several, out)?,
        several => {
            for (name, preview) in names.iter().zip(several) {
                if several.len() > 1 {
                    out.result(&format!("# {}\n", render::or_dash(*name)))?;
                }
                out.result(&render::preview::preview(preview, out))?;
            }
        }
    }
    let fails = |it: &PreviewView| {
        matches!(
            it.outcome,
            PreviewOutcome::Rejected | PreviewOutcome::Refused
        )
    };
    Ok(if previews.iter().any(fails) {
        FAILED
    } else {
        0
    })
}
