//! What lies in the directory of an attempt on its host, beside its output, and by which variables a step finds it. The
//! supervisor makes it, the step and the agent look there.

/// The variable that names the file which appears when the step is being stopped.
pub const NOTICE_VARIABLE: &str = "SLUICE_NOTICE_FILE";

/// That file: JSON with `reason` and `deadline`.
pub const NOTICE_FILE: &str = "notice";

/// The variable that names the file whose change tells of a checkpoint.
pub const CHECKPOINT_VARIABLE: &str = "SLUICE_CHECKPOINT_FILE";

/// A directory that is the step's to write to, whatever its working directory is.
pub const STEP_DIR: &str = "step";

/// The file in it whose change tells of a checkpoint; absent until the step makes it.
pub const CHECKPOINT_FILE: &str = "checkpoint";

/// Where a step works that names no directory.
pub const OWN_WORKDIR: &str = "work";

/// The file that holds a step's variables, where a wrapper runs before it: the wrapper has an environment of its own.
pub const ENV_FILE: &str = "env";

/// The directory of a program that runs beside the attempt, where its streams are: by this and its number.
pub const EXEC_DIR_PREFIX: &str = "exec-";

/// Its streams, in the order of their descriptors.
pub const EXEC_STREAMS: [&str; 3] = ["stdin", "stdout", "stderr"];
