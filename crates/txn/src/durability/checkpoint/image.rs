//! Reading a checkpoint.

use parking_lot::Mutex;

use crate::durability::{
    LogError,
    format::{
        CHECKPOINT_END, CHECKPOINT_HEADER, CheckpointEnd, CheckpointHeader, Damage, FRAME_HEADER, Frame, HeaderError,
        VERSION, frame_length, read_frame, records,
    },
    storage::{Access, Storage, StoredFile, read_all_at},
};

/// A checkpoint whose beginning and end are valid. The frames between are checked as they are read,
/// which several threads can do.
#[derive(Debug)]
pub(in crate::durability) struct CheckpointImage {
    name: String,
    file: Box<dyn StoredFile>,
    pub(in crate::durability) header: CheckpointHeader,
    pub(in crate::durability) end: CheckpointEnd,
    /// The offset of the last frame, and the number of frames before it.
    last: u64,
    frames: u64,
    next: Mutex<Next>,
}

/// The frame to be read next.
#[derive(Debug)]
struct Next {
    offset: u64,
    number: u64,
}

impl CheckpointImage {
    /// Opens a checkpoint.
    ///
    /// # Errors
    ///
    /// When it is damaged or of another format, or an I/O operation fails.
    pub(in crate::durability) fn open(storage: &dyn Storage, name: String, number: u64) -> Result<Self, LogError> {
        let damaged = |offset, why| LogError::Damaged { file: name.clone(), offset, why };
        let file = storage.open(&name, Access::Read).map_err(LogError::io("open", &name))?;
        let length = file.length().map_err(LogError::io("read the length of", &name))?;
        let last = length.checked_sub(CHECKPOINT_END as u64).filter(|last| *last >= CHECKPOINT_HEADER as u64);
        let Some(last) = last else { return Err(damaged(length, "a checkpoint is cut off")) };
        let mut header = [0; CHECKPOINT_HEADER];
        read_all_at(&*file, 0, &mut header).map_err(LogError::io("read", &name))?;
        let header = CheckpointHeader::decode(&header).map_err(|error| match error {
            HeaderError::OtherFormat { found } => LogError::OtherFormat { file: name.clone(), found, reads: VERSION },
            HeaderError::Damaged(damage) => damaged(damage.offset as u64, damage.why),
        })?;
        if header.number != number {
            return Err(damaged(0, "the checkpoint has another's name"));
        }
        let mut bytes = [0; CHECKPOINT_END];
        read_all_at(&*file, last, &mut bytes).map_err(LogError::io("read", &name))?;
        let end = read_frame(&bytes, header.place(last)).and_then(|frame| {
            let (_, record) =
                records(frame.records).next().ok_or(Damage { offset: 0, why: "there is no record" })??;
            Ok((frame.previous, CheckpointEnd::decode(&record)?))
        });
        let (frames, end) = end.map_err(|damage| damaged(last + damage.offset as u64, damage.why))?;
        let next = Mutex::new(Next { offset: CHECKPOINT_HEADER as u64, number: 1 });
        Ok(Self { name, file, header, end, last, frames, next })
    }

    /// Reads the next frame into a buffer. Returns `None` after the last one.
    ///
    /// # Errors
    ///
    /// When it is damaged, or an I/O operation fails.
    pub(in crate::durability) fn next<'b>(&self, bytes: &'b mut Vec<u8>) -> Result<Option<(u64, Frame<'b>)>, LogError> {
        let mut next = self.next.lock();
        let Next { offset, number } = *next;
        if offset == self.last {
            let is_whole = number == self.frames + 1;
            return if is_whole { Ok(None) } else { Err(self.damaged(offset, "a frame is missing")) };
        }
        bytes.resize(FRAME_HEADER, 0);
        let read =
            |offset, into: &mut [u8]| read_all_at(&*self.file, offset, into).map_err(LogError::io("read", &self.name));
        if self.last - offset < FRAME_HEADER as u64 {
            return Err(self.damaged(offset, "a frame's header is cut off"));
        }
        read(offset, bytes)?;
        let length = frame_length(bytes).filter(|length| *length <= self.last - offset);
        let Some(length) = length else { return Err(self.damaged(offset, "no frame begins here, or it is too long")) };
        *next = Next { offset: offset + length, number: number + 1 };
        drop(next);
        bytes.resize(length as usize, 0);
        read(offset + FRAME_HEADER as u64, &mut bytes[FRAME_HEADER..])?;
        match read_frame(bytes, self.header.place(offset)) {
            Ok(frame) if (frame.previous, frame.closes) == (number - 1, number) => Ok(Some((offset, frame))),
            Ok(_) => Err(self.damaged(offset, "a frame is another's")),
            Err(damage) => Err(self.damaged(offset, damage.why)),
        }
    }

    /// Returns the error for damage at an offset of the checkpoint.
    pub(in crate::durability) fn damaged(&self, offset: u64, why: &'static str) -> LogError {
        LogError::Damaged { file: self.name.clone(), offset, why }
    }
}
