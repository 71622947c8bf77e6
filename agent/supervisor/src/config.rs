//! Reads `supervisor.toml`: the users, directories and limits of steps. Whoever can write the file decides
//! which users steps become, so a file that others can write is rejected.
//!
//! `sluice-helper` parses the text as an unprivileged user. Security-relevant values are checked again here,
//! and so are owner and permissions of the hook programs; `identity` looks up the users.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::resource::Resource;
use sluice_codec::{CodecError, decode};
use sluice_common::config::escape_controls;
use sluice_common::helper::{READ_CONFIG, SHOW_CONFIG};
use sluice_common::supervisor_config::{
    CheckedConfig, ConfigFileError, MAX_ANSWER_BYTES, SupervisorConfig,
};

use crate::helper_program::HelperProgram;
use crate::hooks;
use crate::trust::untrusted_reason;

/// In a directory with this bit, users cannot replace files of others.
const STICKY: u32 = 0o1000;

const UMASK_BITS: u32 = 0o777;

/// Paths of NVIDIA's checkpoint library and tool, if they are not in the default places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuda {
    /// The driver's library.
    pub library: Option<PathBuf>,
    /// The tool `cuda-checkpoint`.
    pub tool: Option<PathBuf>,
}

/// Why a config cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read config {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Another user may have written the file.
    #[error("config {}: {reason}, and who can change it decides who steps run as: {way_out}", path.display())]
    Untrusted {
        path: PathBuf,
        reason: String,
        way_out: String,
    },
    /// The file cannot be parsed, or a value is invalid.
    #[error("config {}: {}", path.display(), escape_controls(&mistake.to_string()))]
    Mistake {
        path: PathBuf,
        mistake: ConfigFileError,
    },
    /// The helper's answer cannot be parsed or fails the checks.
    #[error("config {}: sluice-helper gave an answer that cannot be read: install it and sluice-supervisor from one release", path.display())]
    Answer {
        path: PathBuf,
        /// The parse error, if the bytes are no valid answer.
        source: Option<CodecError>,
    },
    /// The effective config cannot be printed.
    #[error("cannot show the config")]
    Show(#[source] io::Error),
}

/// Reads a config file that only root and the supervisor's own user can write. The agent's user is a number
/// in the result.
///
/// # Errors
/// If others can write the file, or it is invalid.
pub fn read(path: &Path) -> Result<SupervisorConfig, ConfigError> {
    let cannot = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let nonsense = |source| ConfigError::Answer {
        path: path.to_owned(),
        source,
    };
    let file = open_trusted(path)?;
    let helper = HelperProgram::installed().map_err(cannot)?;
    let answer = helper.ask(READ_CONFIG, &file).map_err(cannot)?;
    let answer = decode::<Result<SupervisorConfig, ConfigFileError>>(&answer, MAX_ANSWER_BYTES);
    let config = answer.map_err(|e| nonsense(Some(e)))?;
    let mistaken = |mistake| match mistake {
        ConfigFileError::Unreadable(why) => cannot(io::Error::other(escape_controls(&why))),
        mistake => ConfigError::Mistake {
            path: path.to_owned(),
            mistake,
        },
    };
    let mut config = config.map_err(mistaken)?;
    if !is_sound(&config) {
        return Err(nonsense(None));
    }
    hooks::check_programs(&config.hooks).map_err(mistaken)?;
    config.steps.file = Some(path.display().to_string());
    Ok(config)
}

/// The effective config, for `--check-config`.
///
/// # Errors
/// If the helper does not answer.
pub fn show(checked: &CheckedConfig) -> Result<String, ConfigError> {
    let show = || {
        let text = HelperProgram::ask_about(SHOW_CONFIG, checked)?;
        String::from_utf8(text).map_err(io::Error::other)
    };
    show().map_err(ConfigError::Show)
}

/// Whether the helper's answer satisfies the rules that it should have enforced.
fn is_sound(config: &SupervisorConfig) -> bool {
    let steps = &config.steps;
    let paths = steps.workdirs.iter().flatten();
    let mut paths = paths
        .chain(&config.cuda_library)
        .chain(&config.cuda_checkpoint)
        .chain(&config.carving.library);
    paths.all(|path| Path::new(path).is_absolute())
        && config
            .agent
            .as_ref()
            .is_none_or(|agent| agent.uid().is_some())
        && steps.uid_range.uids().is_ok()
        && steps.umask.is_none_or(|mask| mask <= UMASK_BITS)
        && steps.limits.iter().all(|(name, _)| rlimit(name).is_some())
}

/// The resource limit with this name.
pub fn rlimit(name: &str) -> Option<Resource> {
    let resource = match name {
        "cpu_seconds" => Resource::RLIMIT_CPU,
        "nofile" => Resource::RLIMIT_NOFILE,
        "nproc" => Resource::RLIMIT_NPROC,
        "address_space" => Resource::RLIMIT_AS,
        "core" => Resource::RLIMIT_CORE,
        "data" => Resource::RLIMIT_DATA,
        "file_size" => Resource::RLIMIT_FSIZE,
        "memlock" => Resource::RLIMIT_MEMLOCK,
        "stack" => Resource::RLIMIT_STACK,
        _ => return None,
    };
    Some(resource)
}

/// Opens a file that only root and this process's user can write.
fn open_trusted(path: &Path) -> Result<File, ConfigError> {
    let cannot = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let untrusted = |(reason, way_out): (String, String)| ConfigError::Untrusted {
        path: path.to_owned(),
        reason,
        way_out,
    };
    // Without blocking if the path is no regular file; its type is checked next.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(cannot(io::Error::other("it is not a regular file")));
    }
    let own = nix::unistd::geteuid().as_raw();
    let real = fs::canonicalize(path).map_err(cannot)?;
    untrusted_reason(&found, own, &real).map_or(Ok(()), |why| Err(untrusted(why)))?;
    let dir = real
        .parent()
        .expect("a regular file stands in some directory");
    let around = fs::metadata(dir).map_err(cannot)?;
    // Whoever may replace the file need not be able to write it.
    match around.mode() & STICKY {
        0 => untrusted_reason(&around, own, dir).map_or(Ok(file), |why| Err(untrusted(why))),
        _ => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_codec::encode;
    use sluice_common::supervisor_config::{UidRangeSetting, UserRef};
    use sluice_fuzz::Fuzz;
    use std::os::unix::fs::PermissionsExt;

    /// Fuzz test: an answer is parsed and checked, or rejected.
    #[test]
    fn answers_of_the_helper() {
        // `serde` reserves memory for a claimed list length, up to 1 MiB at a time.
        let target = Fuzz::new("config-answer").memory(4 << 20, 256);
        target.run(|input| {
            let found =
                decode::<Result<SupervisorConfig, ConfigFileError>>(input, MAX_ANSWER_BYTES);
            if let Ok(found) = found {
                let _ = found.as_ref().map(is_sound);
                assert_eq!(encode(&found, MAX_ANSWER_BYTES).unwrap(), input);
            }
        });
    }

    #[test]
    fn what_the_helper_would_not_say_of_a_good_file_is_not_believed() {
        assert!(is_sound(&SupervisorConfig::default()));
        let with = |change: fn(&mut SupervisorConfig)| {
            let mut config = SupervisorConfig::default();
            change(&mut config);
            is_sound(&config)
        };
        assert!(with(|it| it.steps.workdirs = Some(vec!["/data".to_owned()])));
        assert!(!with(|it| it.steps.workdirs = Some(vec!["data".to_owned()])));
        assert!(!with(|it| it.cuda_library = Some("libcuda.so.1".to_owned())));
        assert!(!with(|it| it.cuda_checkpoint = Some("tool".to_owned())));
        assert!(!with(
            |it| it.carving.library = Some("libnvidia-ml.so.1".to_owned())
        ));
        assert!(!with(
            |it| it.steps.uid_range = UidRangeSetting::Given([9, 8])
        ));
        assert!(with(|it| it.agent = Some(UserRef::Uid(7))));
        assert!(!with(|it| it.agent = Some(UserRef::Name("a".to_owned()))));
        assert!(!with(|it| it.steps.umask = Some(0o1000)));
        assert!(!with(|it| it.steps.limits = vec![("nofiles".to_owned(), 1)]));
    }

    #[test]
    fn a_file_that_others_can_write_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        fs::write(&path, "").unwrap();
        let chmod = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        for (mode, refused) in [(0o600, false), (0o644, false), (0o664, true), (0o646, true)] {
            chmod(&path, mode);
            let read = open_trusted(&path).map_err(|e| e.to_string());
            assert_eq!(read.is_err(), refused, "{mode:o}");
            assert!(read.err().is_none_or(|told| told.contains("`chmod go-w /")));
        }
        chmod(&path, 0o600);
        chmod(dir.path(), 0o777);
        assert!(
            open_trusted(&path).is_err(),
            "the directory lets it be replaced"
        );
        chmod(dir.path(), 0o1777);
        assert!(open_trusted(&path).is_ok(), "in a sticky one it cannot be");
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            // Only root can give a file away.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.toml");
        fs::write(&path, "").unwrap();
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        let told = open_trusted(&path).unwrap_err().to_string();
        assert!(
            told.contains("belongs to user 1234") && told.contains("`chown root"),
            "{told}"
        );
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(matches!(open_trusted(&path), Err(ConfigError::Read { .. })));
        assert!(matches!(
            open_trusted(dir.path()),
            Err(ConfigError::Read { .. })
        ));
    }
}
