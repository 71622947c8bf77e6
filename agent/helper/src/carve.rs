//! Cuts a GPU into slices (MIG instances), or makes it whole again, by NVIDIA's management library. The supervisor starts
//! this program as root, without a shell or an environment, for one GPU and with a time limit, so that no vendor library
//! is loaded into the supervisor itself. [`driver`] calls the library, [`place`] chooses the places of the slices.
//!
//! ```text
//! has the layout? -> in use? -> offered? -> destroy the instances -> MIG mode -> make the instances -> has the layout?
//! ```
//! Nothing is undone here: whoever asked for the layout asks for the one before if this fails.

mod driver;
mod place;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use lexopt::ValueExt;
use lexopt::prelude::{Long, Value};
use sluice_common::carving::{CarveFailure, GpuLayout, MAX_SLICES_PER_GPU, is_gpu_uuid};
use sluice_common::helper::{HELD, LIBRARY};
use sluice_common::mig::MigProfile;

use driver::{Driver, GpuProfile, MigGpu};
use place::places;

/// Parsed command line.
#[derive(Debug, PartialEq, Eq)]
struct CarveRequest {
    library: Option<PathBuf>,
    /// Units that attempts have.
    held: Vec<String>,
    gpu: String,
    layout: GpuLayout,
}

/// Why the command did nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CarveCommandError {
    #[error(
        "{0}; usage: sluice-helper carve [--library FILE] [--held UUID,...] GPU-UUID whole|none|PROFILE,..."
    )]
    Usage(#[from] lexopt::Error),
    /// Standard output is closed.
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Runs the command line, which lacks the program's name and the mode. The result is printed as JSON: the failure, or
/// `null`.
///
/// # Errors
/// If the command line is invalid, or standard output is closed.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), CarveCommandError> {
    let request = parse(args)?;
    let driver = Driver::open(request.library.as_deref());
    let failure = driver.and_then(|driver| {
        let mut gpu = driver.gpu(&request.gpu)?;
        carve(&mut gpu, &request.layout, &request.held)
    });
    let text = serde_json::to_string(&failure.err()).map_err(io::Error::other)?;
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<CarveRequest, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    let (mut library, mut held, mut gpu, mut layout) = (None, Vec::new(), None, None);
    while let Some(arg) = parser.next()? {
        match arg {
            Long(LIBRARY) => library = Some(PathBuf::from(parser.value()?)),
            Long(HELD) => {
                let text = parser.value()?.string()?;
                held = text.split(',').map(str::to_owned).collect();
            }
            Value(uuid) if gpu.is_none() => gpu = Some(uuid.string()?),
            Value(text) if layout.is_none() => layout = Some(text.parse::<GpuLayout>()?),
            _ => return Err(arg.unexpected()),
        }
    }
    let gpu = gpu.filter(|uuid| is_gpu_uuid(uuid));
    let layout = layout.filter(GpuLayout::can_be_made);
    Ok(CarveRequest {
        library,
        held,
        gpu: gpu.ok_or("the UUID of a GPU is missing, such as GPU-8932f937-...")?,
        layout: layout.ok_or_else(|| {
            format!("the layout is missing: whole, none, or at most {MAX_SLICES_PER_GPU} profiles")
        })?,
    })
}

/// Gives a GPU a layout, unless it has it already.
fn carve(gpu: &mut MigGpu<'_>, layout: &GpuLayout, held: &[String]) -> Result<(), CarveFailure> {
    if gpu.layout()?.as_ref() == Some(layout) && !gpu.is_mode_pending()? {
        return Ok(());
    }
    gpu.check_unused(held)?;
    let offered = gpu.profiles()?;
    match layout {
        GpuLayout::Whole => {
            gpu.destroy_instances()?;
            gpu.set_mode(false)?;
        }
        GpuLayout::Slices(profiles) => {
            let wanted = offered_of(profiles, &offered)?;
            gpu.destroy_instances()?;
            gpu.set_mode(true)?;
            make(gpu, wanted)?;
        }
    }
    match gpu.layout()? {
        Some(found) if found == *layout => Ok(()),
        Some(found) => Err(CarveFailure::OthersSeen(found)),
        None => Err(CarveFailure::Refused(
            "the driver shows instances that are not whole".to_owned(),
        )),
    }
}

/// The driver's profiles of these names.
fn offered_of<'a>(
    wanted: &[MigProfile],
    offered: &'a [GpuProfile],
) -> Result<Vec<&'a GpuProfile>, CarveFailure> {
    let of_name = |wanted: &MigProfile| {
        let found = offered.iter().find(|it| it.name == wanted.as_str());
        found.ok_or_else(|| CarveFailure::NotOffered(wanted.clone()))
    };
    wanted.iter().map(of_name).collect()
}

fn make(gpu: &MigGpu<'_>, mut wanted: Vec<&GpuProfile>) -> Result<(), CarveFailure> {
    // Large ones have the fewest places.
    wanted.sort_by_key(|profile| std::cmp::Reverse(profile.slices));
    let choices = wanted.iter().map(|profile| gpu.places(profile));
    let choices = choices.collect::<Result<Vec<_>, _>>()?;
    let places = places(&choices).ok_or(CarveFailure::NoRoom)?;
    wanted
        .iter()
        .zip(places)
        .try_for_each(|(profile, place)| gpu.create(profile, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<CarveRequest, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|e| e.to_string())
    }

    #[test]
    fn only_a_gpu_and_a_bounded_layout_are_understood() {
        let found = parsed("--library /l --held GPU-1,MIG-2 GPU-0a 3g.40gb,1g.10gb").unwrap();
        let wanted = CarveRequest {
            library: Some("/l".into()),
            held: vec!["GPU-1".to_owned(), "MIG-2".to_owned()],
            gpu: "GPU-0a".to_owned(),
            layout: "1g.10gb,3g.40gb".parse().unwrap(),
        };
        assert_eq!(found, wanted);
        let many = format!("GPU-0 {}1g.10gb", "1g.10gb,".repeat(MAX_SLICES_PER_GPU));
        for line in [
            "",
            "GPU-0",
            "0 whole",
            "MIG-0 whole",
            "GPU-../.. whole",
            "GPU-0 3g",
            "GPU-0 1c.3g.40gb",
            "GPU-0 whole whole",
            "GPU-0 --all whole",
            &many,
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
