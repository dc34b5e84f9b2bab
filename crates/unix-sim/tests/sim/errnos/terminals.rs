//! Errors of calls on terminals and job control.

use tontine_unix::{Errno, Fd, Modes, Result, Signal, Sys, Termios};

use crate::errnos::place::hold;
use crate::errnos::row::{Row, allowed, refused};
use crate::errnos::scene::{
    LOWEST, MINUS_ONE, MISSING, SELF, bare, block, foreigner, ignore, in_child, no_descriptor_more,
    one_descriptor_more, reaped, sleeper,
};

/// A descriptor that is not open.
const CLOSED: Fd = Fd(77);

pub(crate) const ROWS: &[Row] = &[
    // openpty, open_tty
    refused("openpty()", "no free descriptor", Errno::EMFILE, |sys| {
        no_descriptor_more(sys);
        sys.openpty().map(drop)
    }),
    refused("openpty()", "one free descriptor of two", Errno::EMFILE, |sys| {
        one_descriptor_more(sys);
        sys.openpty().map(drop)
    }),
    refused("open_tty()", "a session without a terminal", Errno::ENXIO, |sys| {
        sys.open_tty().map(drop)
    }),
    refused("open_tty()", "no free descriptor", Errno::EMFILE, |sys| {
        at_terminal(sys, |sys, _, _| {
            no_descriptor_more(sys);
            sys.open_tty().map(drop)
        })
    }),
    refused(
        "open_tty()",
        "a lack of descriptors precedes a missing terminal",
        Errno::EMFILE,
        |sys| {
            no_descriptor_more(sys);
            sys.open_tty().map(drop)
        },
    ),
    refused("open_tty()", "a terminal that is hung up", Errno::ENXIO, |sys| {
        hung_up(sys, |sys, _| sys.open_tty().map(drop))
    }),
    // set_controlling
    refused("set_controlling(terminal)", "not open", Errno::EBADF, |sys| {
        sys.set_controlling(CLOSED)
    }),
    refused("set_controlling(terminal)", "−1", Errno::EBADF, |sys| sys.set_controlling(Fd(-1))),
    refused("set_controlling(terminal)", "a pipe", Errno::ENOTTY, |sys| {
        sys.set_controlling(pipe(sys))
    }),
    refused("set_controlling(terminal)", "a caller that leads no session", Errno::EPERM, |sys| {
        let (_, terminal) = sys.openpty()?;
        sys.set_controlling(terminal)
    }),
    refused("set_controlling(terminal)", "a session with a terminal", Errno::EPERM, |sys| {
        at_terminal(sys, |sys, _, _| {
            let (_, second) = sys.openpty()?;
            sys.set_controlling(second)
        })
    }),
    refused("set_controlling(terminal)", "the terminal of another session", Errno::EPERM, |sys| {
        at_terminal(sys, |sys, _, terminal| {
            in_child(sys, move |sys| {
                sys.setsid().expect("the caller leads no group");
                sys.set_controlling(terminal)
            })
        })
    }),
    refused("set_controlling(terminal)", "hung up", Errno::EIO, |sys| {
        hung_up(sys, |sys, terminal| sys.set_controlling(terminal))
    }),
    allowed("set_controlling(terminal)", "the session's own terminal", |sys| {
        at_terminal(sys, |sys, _, terminal| sys.set_controlling(terminal))
    }),
    // tcgetpgrp
    refused("tcgetpgrp(terminal)", "not open", Errno::EBADF, |sys| sys.tcgetpgrp(CLOSED).map(drop)),
    refused("tcgetpgrp(terminal)", "−1", Errno::EBADF, |sys| sys.tcgetpgrp(Fd(-1)).map(drop)),
    refused("tcgetpgrp(terminal)", "a pipe", Errno::ENOTTY, |sys| {
        sys.tcgetpgrp(pipe(sys)).map(drop)
    }),
    refused("tcgetpgrp(terminal)", "without a session", Errno::ENOTTY, |sys| {
        let (_, terminal) = sys.openpty()?;
        sys.tcgetpgrp(terminal).map(drop)
    }),
    refused("tcgetpgrp(terminal)", "the terminal of another session", Errno::ENOTTY, |sys| {
        from_another_session(sys, |sys, terminal| sys.tcgetpgrp(terminal).map(drop))
    }),
    refused("tcgetpgrp(terminal)", "hung up", Errno::EIO, |sys| {
        hung_up(sys, |sys, terminal| sys.tcgetpgrp(terminal).map(drop))
    }),
    allowed("tcgetpgrp(terminal)", "without a session, from the controlling end", |sys| {
        let (controlling, _) = sys.openpty()?;
        assert_eq!(sys.tcgetpgrp(controlling)?, SELF);
        Ok(())
    }),
    // tcsetpgrp
    refused("tcsetpgrp(terminal)", "not open", Errno::EBADF, |sys| {
        sys.tcsetpgrp(CLOSED, sys.getpgrp())
    }),
    refused("tcsetpgrp(terminal)", "a pipe", Errno::ENOTTY, |sys| {
        sys.tcsetpgrp(pipe(sys), sys.getpgrp())
    }),
    refused("tcsetpgrp(terminal)", "without a session", Errno::ENOTTY, |sys| {
        let (_, terminal) = sys.openpty()?;
        sys.tcsetpgrp(terminal, sys.getpgrp())
    }),
    refused("tcsetpgrp(terminal)", "the terminal of another session", Errno::ENOTTY, |sys| {
        from_another_session(sys, |sys, terminal| sys.tcsetpgrp(terminal, sys.getpgrp()))
    }),
    refused("tcsetpgrp(terminal)", "hung up", Errno::ENOTTY, |sys| {
        hung_up(sys, |sys, terminal| sys.tcsetpgrp(terminal, sys.getpgrp()))
    }),
    refused("tcsetpgrp(terminal)", "from an orphaned background group", Errno::ENOTTY, |sys| {
        from_orphaned_background(sys, |sys, terminal| sys.tcsetpgrp(terminal, sys.getpgrp()))
    }),
    refused("tcsetpgrp(group)", "no group has the number", Errno::ESRCH, |sys| {
        at_terminal(sys, |sys, _, terminal| sys.tcsetpgrp(terminal, MISSING))
    }),
    refused("tcsetpgrp(group)", "0", Errno::ESRCH, |sys| {
        at_terminal(sys, |sys, _, terminal| sys.tcsetpgrp(terminal, SELF))
    }),
    refused("tcsetpgrp(group)", "−1", Errno::EINVAL, |sys| {
        at_terminal(sys, |sys, _, terminal| sys.tcsetpgrp(terminal, MINUS_ONE))
    }),
    refused("tcsetpgrp(group)", "the lowest number", Errno::EINVAL, |sys| {
        at_terminal(sys, |sys, _, terminal| sys.tcsetpgrp(terminal, LOWEST))
    }),
    refused("tcsetpgrp(group)", "−1, at a terminal without a session", Errno::EINVAL, |sys| {
        let (_, terminal) = sys.openpty()?;
        sys.tcsetpgrp(terminal, MINUS_ONE)
    }),
    refused("tcsetpgrp(group)", "a group of another session", Errno::EPERM, |sys| {
        at_terminal(sys, |sys, _, terminal| {
            let stranger = foreigner(sys);
            sys.tcsetpgrp(terminal, stranger)
        })
    }),
    refused("tcsetpgrp(group)", "already reaped", Errno::ESRCH, |sys| {
        at_terminal(sys, |sys, _, terminal| {
            let gone = bare(reaped(sys));
            sys.tcsetpgrp(terminal, gone)
        })
    }),
    // POSIX specifies EPERM.
    allowed("tcsetpgrp(group)", "a process that leads no group", to_who_leads_none),
    // tcgetsid
    refused("tcgetsid(terminal)", "not open", Errno::EBADF, |sys| sys.tcgetsid(CLOSED).map(drop)),
    refused("tcgetsid(terminal)", "a pipe", Errno::ENOTTY, |sys| sys.tcgetsid(pipe(sys)).map(drop)),
    refused("tcgetsid(terminal)", "without a session", Errno::ENOTTY, |sys| {
        let (_, terminal) = sys.openpty()?;
        sys.tcgetsid(terminal).map(drop)
    }),
    refused(
        "tcgetsid(terminal)",
        "without a session, from the controlling end",
        Errno::ENOTTY,
        |sys| {
            let (controlling, _) = sys.openpty()?;
            sys.tcgetsid(controlling).map(drop)
        },
    ),
    refused("tcgetsid(terminal)", "the terminal of another session", Errno::ENOTTY, |sys| {
        from_another_session(sys, |sys, terminal| sys.tcgetsid(terminal).map(drop))
    }),
    refused("tcgetsid(terminal)", "hung up", Errno::EIO, |sys| {
        hung_up(sys, |sys, terminal| sys.tcgetsid(terminal).map(drop))
    }),
    // tcgetattr, tcsetattr
    refused("tcgetattr(terminal)", "not open", Errno::EBADF, |sys| sys.tcgetattr(CLOSED).map(drop)),
    refused("tcgetattr(terminal)", "a pipe", Errno::ENOTTY, |sys| {
        sys.tcgetattr(pipe(sys)).map(drop)
    }),
    refused("tcgetattr(terminal)", "hung up", Errno::EIO, |sys| {
        hung_up(sys, |sys, terminal| sys.tcgetattr(terminal).map(drop))
    }),
    refused("tcsetattr(terminal)", "not open", Errno::EBADF, |sys| {
        sys.tcsetattr(CLOSED, &Termios::default())
    }),
    refused("tcsetattr(terminal)", "a pipe", Errno::ENOTTY, |sys| {
        sys.tcsetattr(pipe(sys), &Termios::default())
    }),
    refused("tcsetattr(terminal)", "hung up", Errno::EIO, |sys| {
        hung_up(sys, |sys, terminal| sys.tcsetattr(terminal, &Termios::default()))
    }),
    refused("tcsetattr(terminal)", "from an orphaned background group", Errno::EIO, |sys| {
        from_orphaned_background(sys, |sys, terminal| sys.tcsetattr(terminal, &Termios::default()))
    }),
    allowed("tcsetattr(termios)", "unknown modes, and any characters", |sys| {
        let (_, terminal) = sys.openpty()?;
        let modes = Modes::from_bits_retain(u32::MAX);
        let all = 0xff;
        let termios = Termios {
            modes,
            interrupt: all,
            quit: all,
            suspend: all,
            end: all,
            erase: all,
            kill: all,
        };
        sys.tcsetattr(terminal, &termios)
    }),
    // Reading and writing
    refused("read(descriptor)", "a terminal, from the background, blocked", Errno::EIO, |sys| {
        from_background(sys, |sys, terminal| {
            block(sys, Signal::TTIN);
            sys.read(terminal, &mut [0]).map(drop)
        })
    }),
    refused("read(descriptor)", "a terminal, from the background, ignored", Errno::EIO, |sys| {
        from_background(sys, |sys, terminal| {
            ignore(sys, Signal::TTIN);
            sys.read(terminal, &mut [0]).map(drop)
        })
    }),
    refused("read(descriptor)", "a terminal, from an orphaned group", Errno::EIO, |sys| {
        from_orphaned_background(sys, |sys, terminal| sys.read(terminal, &mut [0]).map(drop))
    }),
    refused("read(descriptor)", "the controlling end, terminal closed", Errno::EIO, |sys| {
        let (controlling, terminal) = sys.openpty()?;
        sys.close(terminal)?;
        sys.read(controlling, &mut [0]).map(drop)
    }),
    allowed("read(descriptor)", "a terminal that is hung up", |sys| {
        hung_up(sys, |sys, terminal| {
            assert_eq!(sys.read(terminal, &mut [0])?, 0);
            Ok(())
        })
    }),
    refused("write(descriptor)", "a terminal that is hung up", Errno::EIO, |sys| {
        hung_up(sys, |sys, terminal| sys.write(terminal, b"x").map(drop))
    }),
];

fn to_who_leads_none(sys: &dyn Sys) -> Result<()> {
    at_terminal(sys, |sys, _, terminal| {
        let child = sleeper(sys);
        sys.tcsetpgrp(terminal, child)
    })
}

fn pipe(sys: &dyn Sys) -> Fd {
    sys.pipe().expect("two descriptors").0
}

/// Makes `call` in a session leader with a controlling terminal; passes both ends, the controlling
/// end first.
fn at_terminal(
    sys: &dyn Sys,
    call: impl FnOnce(&dyn Sys, Fd, Fd) -> Result<()> + Send + 'static,
) -> Result<()> {
    in_child(sys, move |sys| {
        sys.setsid().expect("the caller leads no group");
        let (controlling, terminal) = sys.openpty().expect("two descriptors");
        sys.set_controlling(terminal).expect("a terminal without a session");
        // SIGHUP arrives when the session ends and its terminal is hung up.
        ignore(sys, Signal::HUP);
        call(sys, controlling, terminal)
    })
}

/// Makes `call` in a session whose terminal was hung up.
fn hung_up(
    sys: &dyn Sys,
    call: impl FnOnce(&dyn Sys, Fd) -> Result<()> + Send + 'static,
) -> Result<()> {
    at_terminal(sys, |sys, controlling, terminal| {
        sys.close(controlling).expect("an open descriptor");
        call(sys, terminal)
    })
}

/// Makes `call` in a process that holds a descriptor of another session's terminal.
fn from_another_session(
    sys: &dyn Sys,
    call: impl FnOnce(&dyn Sys, Fd) -> Result<()> + Send + 'static,
) -> Result<()> {
    at_terminal(sys, |sys, _, terminal| {
        in_child(sys, move |sys| {
            sys.setsid().expect("the caller leads no group");
            call(sys, terminal)
        })
    })
}

/// Makes `call` in a background group.
fn from_background(
    sys: &dyn Sys,
    call: impl FnOnce(&dyn Sys, Fd) -> Result<()> + Send + 'static,
) -> Result<()> {
    at_terminal(sys, |sys, _, terminal| {
        in_child(sys, move |sys| {
            sys.setpgid(SELF, SELF).expect("the caller leads no session");
            call(sys, terminal)
        })
    })
}

/// Makes `call` in an orphaned background group, which no process could continue if it stopped.
fn from_orphaned_background(
    sys: &dyn Sys,
    call: impl FnOnce(&dyn Sys, Fd) -> Result<()> + Send + 'static,
) -> Result<()> {
    at_terminal(sys, |sys, _, terminal| {
        let (told, tell) = sys.pipe().expect("two descriptors");
        let between = sys.fork(move |sys| {
            sys.setpgid(SELF, SELF).expect("the caller leads no session");
            let parent = sys.getpid();
            let member = sys.fork(move |sys| {
                while sys.getppid() == parent {
                    sys.sched_yield();
                }
                let errno = call(sys, terminal).map_or_else(Errno::raw, |()| 0);
                sys.write(tell, &errno.to_ne_bytes()).expect("the parent reads");
                0
            });
            member.expect("within the limits");
            0
        });
        between.expect("within the limits");
        sys.wait().expect("a child of the caller");
        let mut errno = [0; 4];
        assert_eq!(sys.read(told, &mut errno), Ok(4));
        match i32::from_ne_bytes(errno) {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno)),
        }
    })
}

#[test]
fn terminal_errors_match_linux() {
    hold(ROWS);
}
