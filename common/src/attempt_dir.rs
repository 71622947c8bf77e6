//! Layout of an attempt's directory on its host, and the environment variables that tell a step its paths. The
//! supervisor creates the files; the step and the agent read them.

/// Environment variable with the path of the stop notice.
pub const NOTICE_VARIABLE: &str = "SLUICE_NOTICE_FILE";

/// Stop notice, created when the step is being stopped: JSON with `reason` and `deadline`.
pub const NOTICE_FILE: &str = "notice";

/// Environment variable with the path of the checkpoint marker.
pub const CHECKPOINT_VARIABLE: &str = "SLUICE_CHECKPOINT_FILE";

/// Directory that is always writable for the step, whatever its working directory.
pub const STEP_DIR: &str = "step";

/// Checkpoint marker in [`STEP_DIR`]: the step touches the file when it has saved its work. Absent until then.
pub const CHECKPOINT_FILE: &str = "checkpoint";

/// Default working directory of a step.
pub const OWN_WORKDIR: &str = "work";

/// Files of [`OWN_WORKDIR`] that are kept after the end, as one stream of `sluice-copy`; absent if none are.
pub const KEPT_FILE: &str = "kept";

/// [`KEPT_FILE`] while it is written.
pub const KEPT_PART_FILE: &str = "kept.part";

/// File with the step's environment variables, for wrappers, which have an environment of their own.
pub const ENV_FILE: &str = "env";

/// Container of the step, as JSON of [`crate::container::Container`]; absent if the step runs on the host itself.
pub const CONTAINER_FILE: &str = "container";

/// Prefix of the directories with the streams of `exec` programs; their number follows.
pub const EXEC_DIR_PREFIX: &str = "exec-";

/// Streams of an `exec` program, ordered by file descriptor.
pub const EXEC_STREAMS: [&str; 3] = ["stdin", "stdout", "stderr"];

/// Directory for [`INPUT_SOCKET`]; only the agent may enter it.
pub const INPUT_DIR: &str = "input";

/// Socket on which `sluice-helper` takes the standard input of a step or of an `exec` program with a terminal, from one
/// connection at a time, in the frames of [`crate::exec`]. It answers with the number of bytes that it has taken, 8 bytes,
/// big-endian: on connection and after each piece; [`INPUT_ENDED`] means that the program takes no more.
pub const INPUT_SOCKET: &str = "socket";

/// Answer of [`INPUT_SOCKET`] instead of a number of bytes.
pub const INPUT_ENDED: u64 = u64::MAX;

/// Prefix of the names of the control groups of attempts, with which no kernel file begins; the id of the attempt follows.
pub const GROUP_PREFIX: &str = "attempt-";
