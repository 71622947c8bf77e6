//! Copies from this machine to a step. One thread hears how far the helper is, while this one sends.

use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use sluice_common::exec::MAX_FRAME_BYTES;
use sluice_copy::{
    CopyError, CopyFailure, CopyId, CopyReader, CopyReport, CopyRequest, CopyTarget, CopyWriter,
    Destination, Position, send,
};

use super::session::{CopySession, HelperInput, HelperOutput};
use crate::client::{ExecConnection, MessageReader};
use crate::commands::hear_ending;
use crate::failure::Failure;
use crate::out::Out;
use crate::signals;

pub(super) fn run(
    session: &mut CopySession<'_>,
    source: &Path,
    target: CopyTarget,
    out: Out,
) -> Result<u8, Failure> {
    // A mistake in the path is told before the step is disturbed.
    source
        .metadata()
        .map_err(|e| Failure::Failed(format!("cannot read `{}`: {e}", source.display())))?;
    let mut upload = Upload {
        source,
        target,
        interrupt: EndSignal::listen(out)?,
        progress: UploadState::default(),
        out,
    };
    let copied = upload.copy(session);
    if let (Err(_), Some(code)) = (&copied, upload.interrupt.exit_code()) {
        return Ok(code);
    }
    copied?;
    let UploadState {
        destination,
        files,
        unread,
        ..
    } = upload.progress;
    let path = destination.map(|it| it.path()).unwrap_or_default();
    Ok(super::ended(files, unread, &path, out))
}

struct Upload<'a> {
    source: &'a Path,
    target: CopyTarget,
    interrupt: EndSignal,
    progress: UploadState,
    out: Out,
}

/// State that the helper has reported.
#[derive(Clone, Default)]
struct UploadState {
    destination: Option<Destination>,
    position: Option<Position>,
    files: usize,
    unread: usize,
}

/// End of a connection.
enum UploadEnd {
    Complete,
    /// The helper failed.
    Failed(CopyFailure),
    /// The connection broke.
    Lost(CopyError, Option<Failure>),
}

impl Upload<'_> {
    fn copy(&mut self, session: &mut CopySession<'_>) -> Result<(), Failure> {
        loop {
            let connection = session.connect()?;
            let before = self.progress.position.clone();
            let (sent, end) = self.send_by(connection, session.transfer);
            if self.progress.position != before {
                session.on_progress();
            }
            match (end, sent) {
                (UploadEnd::Complete, _) => return Ok(()),
                (_, Err(error)) if !matches!(error, CopyError::Lost(_)) => {
                    return Err(Failure::Failed(error.to_string()));
                }
                (UploadEnd::Failed(CopyFailure::PartGone), _) => {
                    if let Some(position) = &mut self.progress.position {
                        position.forget_part();
                    }
                }
                (UploadEnd::Failed(failure @ CopyFailure::Failed(_)), _) => {
                    return Err(Failure::Failed(failure.to_string()));
                }
                (UploadEnd::Lost(_, Some(refused)), _) => return Err(refused),
                (UploadEnd::Lost(CopyError::Lost(why), None), _) => {
                    session.on_lost(&why.to_string())?;
                }
                (UploadEnd::Lost(error, None), _) => {
                    return Err(Failure::Failed(error.to_string()));
                }
            }
        }
    }

    /// Sends by one connection, and hears how that went.
    fn send_by(
        &mut self,
        connection: ExecConnection,
        transfer: CopyId,
    ) -> (Result<(), CopyError>, UploadEnd) {
        let ExecConnection { reader, writer, .. } = connection;
        let after = self.progress.position.clone();
        let target = match &self.progress.destination {
            Some(destination) => CopyTarget::Decided(destination.clone()),
            None => self.target.clone(),
        };
        let (source, out) = (self.source, self.out);
        let interrupted = Arc::clone(&self.interrupt.heard);
        let progress = &mut self.progress;
        thread::scope(|threads| {
            let hearing = threads.spawn(move || hear(reader, source, progress, out));
            let input = BufWriter::with_capacity(MAX_FRAME_BYTES, HelperInput(writer));
            let mut input = CopyWriter::new(input).until(interrupted);
            let request = CopyRequest::Write { target, transfer };
            let asked = input.message(&request);
            let sent = asked.and_then(|()| send(source, after.as_ref(), &mut input));
            let end = hearing
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (sent, end)
        })
    }
}

/// Signals that end this command. The first ends the copy, and the helper removes the file that has not arrived as a whole.
/// The second ends this process.
struct EndSignal {
    heard: Arc<AtomicBool>,
    /// Number of the first signal.
    signal: Arc<AtomicI32>,
}

impl EndSignal {
    fn listen(out: Out) -> Result<Self, Failure> {
        let (heard, signal) = (Arc::<AtomicBool>::default(), Arc::<AtomicI32>::default());
        let (flag, number) = (Arc::clone(&heard), Arc::clone(&signal));
        hear_ending(move |signal| {
            if flag.load(Ordering::Relaxed) {
                std::process::exit(i32::from(signals::exit_code(signal)))
            }
            number.store(signal, Ordering::Relaxed);
            flag.store(true, Ordering::Relaxed);
            out.progress("ending the copy; a second Ctrl-C does not wait for the host");
            true
        })?;
        Ok(Self { heard, signal })
    }

    /// Exit code of this command, if a signal ended the copy.
    fn exit_code(&self) -> Option<u8> {
        let heard = self.heard.load(Ordering::Relaxed);
        heard.then(|| signals::exit_code(self.signal.load(Ordering::Relaxed)))
    }
}

/// Hears the helper until the end of the connection, and closes it for the sending thread too.
fn hear(reader: MessageReader, source: &Path, progress: &mut UploadState, out: Out) -> UploadEnd {
    let mut reports = CopyReader::new(HelperOutput::new(reader));
    let source = source.as_os_str().as_encoded_bytes();
    let end = loop {
        match reports.message() {
            Ok(CopyReport::Destination(destination)) => progress.destination = Some(destination),
            Ok(CopyReport::Position(position)) => {
                progress.files += usize::from(position.part.is_none());
                progress.position = Some(position);
            }
            Ok(CopyReport::Note(note)) => {
                super::print_note(&note, source, &mut progress.unread, out);
            }
            Ok(CopyReport::Complete) => break Ok(UploadEnd::Complete),
            Ok(CopyReport::Failed(failure)) => break Ok(UploadEnd::Failed(failure)),
            Err(error) => break Err(error),
        }
    };
    let refused = reports.into_inner().close();
    end.unwrap_or_else(|error| UploadEnd::Lost(error, refused))
}
