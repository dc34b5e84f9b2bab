//! The search for a message's space: in the chunk, in space that the receiver has freed, or in a
//! new chunk.
//!
//! The methods of [`OutboundLane`] here never wait; [`super::wait_limit`] calls them again.
//! [`super::growth`] and [`super::stream`] decide when the lane grows.

use super::growth::{GrowthStep, SpaceRequest};
use super::outbound::OutboundLane;
use super::stream::StreamSpeed;
use crate::error::{Error, Result};
use crate::lane::FreeSpace;

impl OutboundLane {
    /// Returns `true` if the receiver of an open lane has freed enough space since the last check.
    /// A full ring needs this check once per lap.
    pub(super) fn find_space_read_meanwhile(&mut self, length: usize) -> bool {
        self.check().is_ok()
            && self.is_open()
            && self.refresh_space().is_ok()
            && (self.writer.fits(length) || self.writer.make_space(length) == FreeSpace::Here)
    }

    /// Continues in a large chunk if the lane carries a fast stream, and if caps and memory allow
    /// that now. A message of `length` bytes fits before and after the call.
    pub(super) fn outgrow(&mut self, length: usize) {
        if self.stream.is_outgrown(length, &self.writer) {
            // For its speed, a lane neither requests memory from the receiver nor fails.
            let step = self.plan_growth(StreamSpeed::LONGEST);
            let log2 = if let Ok(GrowthStep::GoOnIn(log2)) = step { Some(log2) } else { None };
            self.stream.refused = !log2.is_some_and(|log2| self.go_on_in(log2) == Ok(true));
        }
    }

    /// Returns `true` if a message fits now, into this chunk or a new one. Unless `thorough` is
    /// set, checks only the space that the receiver has announced.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Protocol`], or the error of a system call.
    pub(super) fn find_space(
        &mut self,
        request: &mut SpaceRequest,
        thorough: bool,
    ) -> Result<bool> {
        let length = request.length;
        self.check_length(length)?;
        if self.writer.fits(length) {
            return Ok(true);
        }
        if !thorough {
            self.refresh_space()?;
            return Ok(self.writer.make_space(length) == FreeSpace::Here);
        }
        self.refresh()?;
        match self.writer.make_space(length) {
            FreeSpace::Here => Ok(true),
            FreeSpace::Never => {
                Ok(self.grow(length)? && self.writer.make_space(length) == FreeSpace::Here)
            }
            FreeSpace::Later if self.reader_keeps_up(request) => Ok(false),
            FreeSpace::Later => match self.grow(length) {
                // The message fits into this chunk once the receiver has read more.
                Err(Error::FileTooLarge { .. }) => Ok(false),
                grown => Ok(grown? && self.writer.make_space(length) == FreeSpace::Here),
            },
        }
    }

    fn reader_keeps_up(&self, request: &mut SpaceRequest) -> bool {
        self.connection.open().is_some_and(|joined| request.waits_for(joined, &self.writer))
    }
}
