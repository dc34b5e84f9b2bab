//! Programs that read and write text: `cat`, `echo`, `head`, `seq`, `wc`, `yes`.

use tontine_unix::{Errno, Fd, Result, Sys};

use super::super::say::{say, write_all};
use super::{ProgramFailure, finish};

/// Copies input to output.
pub(super) fn cat(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let copied = || match arguments {
        [_] => each_part(sys, |part| write_all(sys, Fd::STDOUT, part).map(|()| true)),
        _ => Err(ProgramFailure::Usage("cat")),
    };
    finish(sys, arguments, copied().map(|()| 0))
}

/// Writes the arguments.
pub(super) fn echo(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let said = say(sys, arguments[1..].join(" ") + "\n");
    finish(sys, arguments, said.map(|()| 0).map_err(ProgramFailure::Call))
}

/// Copies the first lines, ten by default.
pub(super) fn head(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let copied = || {
        let usage = ProgramFailure::Usage("head [-n lines]");
        let mut left: usize = match &arguments[1..] {
            [] => 10,
            [flag, count] if flag == "-n" => count.parse().map_err(|_| usage)?,
            _ => return Err(usage),
        };
        if left == 0 {
            return Ok(());
        }
        each_part(sys, |part| {
            let mut end = part.len();
            for (at, _) in part.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
                left -= 1;
                if left == 0 {
                    end = at + 1;
                    break;
                }
            }
            write_all(sys, Fd::STDOUT, &part[..end])?;
            Ok(left > 0)
        })
    };
    finish(sys, arguments, copied().map(|()| 0))
}

/// Writes the numbers from the first, by default 1, to the last.
pub(super) fn seq(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let counted = || {
        let number = |text: &String| text.parse::<i64>();
        let range = match &arguments[1..] {
            [last] => number(last).map(|last| 1..=last),
            [first, last] => number(first).and_then(|first| Ok(first..=number(last)?)),
            _ => return Err(ProgramFailure::Usage("seq [first] last")),
        };
        for n in range.map_err(|_| ProgramFailure::Usage("seq [first] last"))? {
            say(sys, format_args!("{n}\n"))?;
        }
        Ok(0)
    };
    finish(sys, arguments, counted())
}

/// Counts lines, words and bytes.
pub(super) fn wc(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let counted = || {
        if arguments.len() > 1 {
            return Err(ProgramFailure::Usage("wc"));
        }
        let (mut lines, mut words, mut bytes) = (0_u64, 0_u64, 0_u64);
        let mut between = true;
        each_part(sys, |part| {
            for byte in part {
                lines += u64::from(*byte == b'\n');
                words += u64::from(between && !byte.is_ascii_whitespace());
                between = byte.is_ascii_whitespace();
            }
            bytes += part.len() as u64;
            Ok(true)
        })?;
        say(sys, format_args!("{lines} {words} {bytes}\n"))?;
        Ok(0)
    };
    finish(sys, arguments, counted())
}

/// Writes the same line, the arguments or `y`, until the process is killed.
pub(super) fn yes(sys: &dyn Sys, arguments: &[String]) -> i32 {
    let text = if arguments.len() > 1 { arguments[1..].join(" ") } else { "y".to_owned() };
    loop {
        if let Err(errno) = say(sys, format_args!("{text}\n")) {
            return finish(sys, arguments, Err(errno.into()));
        }
    }
}

/// Reads to end-of-file, or until `see` returns `false` for a part.
fn each_part(
    sys: &dyn Sys,
    mut see: impl FnMut(&[u8]) -> Result<bool>,
) -> std::result::Result<(), ProgramFailure> {
    let mut buffer = [0; 4096];
    loop {
        match sys.read(Fd::STDIN, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) if !see(&buffer[..n])? => return Ok(()),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
