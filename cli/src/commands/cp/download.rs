//! Copies from a step to this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sluice_copy::{
    CopyError, CopyId, CopyIssue, CopyListener, CopyReader, CopyRequest, CopyTarget, CopyWriter,
    Destination, Position, receive,
};

use super::session::{CopySession, HelperInput, HelperOutput};
use crate::client::ExecConnection;
use crate::commands::hear_ending;
use crate::failure::Failure;
use crate::out::Out;
use crate::signals;

pub(super) fn run(
    session: &mut CopySession<'_>,
    path: &str,
    target: CopyTarget,
    out: Out,
) -> Result<u8, Failure> {
    let destination = target.decide();
    let part = PartFile::default();
    part.remove_at_signal()?;
    let mut download = Download {
        source: path,
        destination: &destination,
        transfer: session.transfer,
        part: &part,
        position: None,
        has_progressed: false,
        files: 0,
        unread: 0,
        out,
    };
    let copied = download.copy(session);
    if copied.is_err() {
        part.remove();
    }
    copied?;
    let Download { files, unread, .. } = download;
    Ok(super::ended(files, unread, &destination.path(), out))
}

struct Download<'a> {
    /// Path in the step.
    source: &'a str,
    destination: &'a Destination,
    transfer: CopyId,
    part: &'a PartFile,
    /// Position up to which the copy has arrived.
    position: Option<Position>,
    /// Whether the position has changed on this connection.
    has_progressed: bool,
    files: usize,
    unread: usize,
    out: Out,
}

impl Download<'_> {
    fn copy(&mut self, session: &mut CopySession<'_>) -> Result<(), Failure> {
        loop {
            let connection = session.connect()?;
            let (copied, refused) = self.receive_from(connection);
            if std::mem::take(&mut self.has_progressed) {
                session.on_progress();
            }
            match (copied, refused) {
                (Ok(()), _) => return Ok(()),
                (Err(CopyError::Lost(_)), Some(refused)) => return Err(refused),
                (Err(CopyError::Lost(why)), None) => session.on_lost(&why.to_string())?,
                // This machine has lost the part, so the file comes from its start.
                (Err(CopyError::PartGone(_)), _) => {
                    if let Some(position) = &mut self.position {
                        position.forget_part();
                    }
                }
                (Err(error), _) => return Err(Failure::Failed(error.to_string())),
            }
        }
    }

    /// Receives by one connection. Returns the reason for which no new connection helps, if there is one.
    fn receive_from(
        &mut self,
        connection: ExecConnection,
    ) -> (Result<(), CopyError>, Option<Failure>) {
        let request = CopyRequest::Read {
            path: self.source.as_bytes().to_vec(),
            after: self.position.clone(),
        };
        let asked = CopyWriter::new(HelperInput(connection.writer)).message(&request);
        let mut input = CopyReader::new(HelperOutput::new(connection.reader));
        let (destination, transfer) = (self.destination, self.transfer);
        let copied = asked.and_then(|()| receive(&mut input, destination, transfer, self));
        (copied, input.into_inner().close())
    }
}

impl CopyListener for Download<'_> {
    fn on_position(&mut self, position: &Position) -> io::Result<()> {
        let part = position.part.is_some();
        let path = || self.destination.part_path(&position.path, self.transfer);
        self.part.set(part.then(path));
        self.files += usize::from(!part);
        self.has_progressed |= self.position.as_ref() != Some(position);
        self.position = Some(position.clone());
        Ok(())
    }

    fn on_note(&mut self, note: CopyIssue) -> io::Result<()> {
        super::print_note(&note, self.source.as_bytes(), &mut self.unread, self.out);
        Ok(())
    }
}

/// Path of the file that has arrived in part, which no end of this command leaves behind.
#[derive(Clone, Default)]
struct PartFile(Arc<Mutex<Option<PathBuf>>>);

impl PartFile {
    fn set(&self, path: Option<PathBuf>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = path;
    }

    fn remove(&self) {
        let path = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = path.as_deref() {
            remove_file(path);
        }
    }

    fn remove_at_signal(&self) -> Result<(), Failure> {
        let part = self.clone();
        hear_ending(move |signal| {
            part.remove();
            std::process::exit(i32::from(signals::exit_code(signal)))
        })
    }
}

fn remove_file(path: &Path) {
    let _it_may_have_got_its_name = fs::remove_file(path);
}
