//! Streams on which a host requests the inputs of an attempt that it is to start.

use std::io::Read;

use sluice_common::id::NodeName;
use sluice_common::inputs::{InputFile, InputHash};
use sluice_common::wire::{InputsRequest, LogReply};
use sluice_transport::{FrameReader, FrameWriter};
use tokio::task::spawn_blocking;

use super::{SessionEnd, next_message};
use crate::engine::EngineHandle;
use crate::inputs::{InputStore, inputs_of};

/// Bytes read from the disk and sent at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// Answers one request. A host that asks for the inputs of an attempt which is not its own, or not known yet, gets no
/// answer; it asks again while it wants them.
pub(super) async fn serve(
    node: &NodeName,
    engine: &EngineHandle,
    inputs: &InputStore,
    (mut out, mut requests): (FrameWriter, FrameReader),
) -> Result<(), SessionEnd> {
    let InputsRequest { attempt } = next_message(&mut requests).await?;
    let (of, there) = (attempt.clone(), node.clone());
    let found = engine.read(move |core| inputs_of(core, &of, &there)).await;
    let Ok(Some((by, files))) = found else {
        tracing::info!(%attempt, "the host requests inputs of an attempt that it does not have");
        return Ok(());
    };
    let (store, all, whose) = (inputs.clone(), files.clone(), by.clone());
    let missing = move || {
        let mut all = all.into_iter();
        all.find(|it| store.read(&whose, it).is_none())
    };
    if let Some(missing) = blocking(missing).await {
        let message = format!(
            "input `{}` is not on the coordinator any more: submit the step again",
            missing.name.escape_debug()
        );
        out.send(&LogReply::Refused { message }).await?;
        out.finish();
        return Ok(());
    }
    out.send(&LogReply::From { offset: 0 }).await?;
    for file in &files {
        if !send(inputs, &by, file, &mut out).await? {
            // The host requests all again, and is then told that it is not here.
            tracing::warn!(%attempt, name = %file.name, "an input cannot be read and is removed");
            inputs.discard(&by, file);
            return Ok(());
        }
    }
    out.finish();
    out.delivered().await?;
    Ok(())
}

/// Sends the contents of a file; returns whether they could be read.
async fn send(
    inputs: &InputStore,
    by: &InputHash,
    file: &InputFile,
    out: &mut FrameWriter,
) -> Result<bool, SessionEnd> {
    let (store, wanted, whose) = (inputs.clone(), file.clone(), by.clone());
    let Some(mut opened) = blocking(move || store.read(&whose, &wanted)).await else {
        return Ok(false);
    };
    let mut left = file.size;
    while left > 0 {
        let most = CHUNK_BYTES.min(usize::try_from(left).unwrap_or(CHUNK_BYTES));
        let read = move || {
            let mut chunk = vec![0; most];
            let read = opened.read_exact(&mut chunk);
            read.map(|()| (opened, chunk)).ok()
        };
        let Some((again, chunk)) = blocking(read).await else {
            return Ok(false);
        };
        opened = again;
        out.send_bytes(&chunk).await?;
        left -= chunk.len() as u64;
    }
    Ok(true)
}

/// Does work with the disk elsewhere; `None` as well if it panicked.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    spawn_blocking(work).await.ok().flatten()
}
