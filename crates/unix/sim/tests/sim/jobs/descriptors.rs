//! Descriptors: their numbers, their limit, and their inheritance.

use tontine_unix::{Errno, Fd, SpawnRequest, WaitStatus};

use crate::jobs::scene::{CAT, end, everywhere, everywhere_and_on_linux, fork};

#[test]
fn new_descriptor_has_lowest_free_number() {
    everywhere(|sys| {
        assert_eq!(sys.pipe(), Ok((Fd(3), Fd(4))));
        assert_eq!(sys.pipe(), Ok((Fd(5), Fd(6))));
        sys.close(Fd(4)).unwrap();
        assert_eq!(sys.openpty(), Ok((Fd(4), Fd(7))));
    });
}

/// Regression: without a console, descriptors 0 to 2 were closed, and the first pipe received their
/// numbers. In that case `dup2(w, 1); close(w)` closed the descriptor that it had just created, and
/// written bytes were lost without an error.
#[test]
fn standard_descriptors_without_console_are_null_device() {
    everywhere(|sys| {
        for standard in [Fd::STDIN, Fd::STDOUT, Fd::STDERR] {
            assert_eq!(sys.read(standard, &mut [0; 8]), Ok(0));
            assert_eq!(sys.write(standard, b"dropped"), Ok(7));
            assert_eq!(sys.tcgetattr(standard), Err(Errno::ENOTTY));
        }
        let (from, to) = sys.pipe().unwrap();
        assert_eq!((from, to), (Fd(3), Fd(4)));
        sys.dup2(to, Fd::STDOUT).unwrap();
        sys.close(to).unwrap();
        let child = fork(sys, |sys| assert_eq!(sys.write(Fd::STDOUT, b"heard"), Ok(5)));
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
        let mut heard = [0; 8];
        assert_eq!(sys.read(from, &mut heard), Ok(5));
        // A duplicate refers to the same device, and closing one duplicate leaves the others open.
        sys.dup2(Fd::STDERR, Fd(9)).unwrap();
        sys.close(Fd::STDERR).unwrap();
        assert_eq!(sys.write(Fd::STDERR, b"x"), Err(Errno::EBADF));
        assert_eq!(sys.write(Fd(9), b"x"), Ok(1));
        assert_eq!(sys.close(Fd::STDERR), Err(Errno::EBADF));
        sys.dup2(Fd(9), Fd::STDERR).unwrap();
        assert_eq!(sys.write(Fd::STDERR, b"x"), Ok(1));
    });
}

/// If a process closes a standard descriptor, its new children lack the descriptor too, and the
/// next open call returns its number, as on Linux.
#[test]
fn closed_standard_descriptor_is_allocated_next() {
    everywhere_and_on_linux(|sys| {
        sys.close(Fd::STDIN).unwrap();
        let child = fork(sys, |sys| {
            assert_eq!(sys.read(Fd::STDIN, &mut [0; 8]), Err(Errno::EBADF));
            assert_eq!(sys.pipe().map(|(from, _)| from), Ok(Fd::STDIN));
        });
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
        assert_eq!(sys.pipe().map(|(from, _)| from), Ok(Fd::STDIN));
    });
}

#[test]
fn spawn_moves_descriptors_simultaneously() {
    everywhere_and_on_linux(|sys| {
        let _low = (sys.pipe(), sys.pipe());
        let (input, type_in) = sys.pipe().unwrap();
        let (see, output) = sys.pipe().unwrap();
        // The descriptors exchange numbers, so moving them one by one would overwrite one of them.
        sys.dup2(input, Fd(40)).unwrap();
        sys.dup2(output, Fd(41)).unwrap();
        let mut spawn = SpawnRequest::new(CAT, &["cat"]);
        spawn.descriptors =
            vec![(Fd(40), Fd(41)), (Fd(41), Fd(40)), (Fd(40), Fd::STDIN), (Fd(41), Fd::STDOUT)];
        let child = sys.spawn(&spawn).unwrap();
        for mine in [input, output, Fd(40), Fd(41)] {
            sys.close(mine).unwrap();
        }
        sys.write(type_in, b"ab").unwrap();
        let mut seen = [0; 8];
        assert_eq!(sys.read(see, &mut seen), Ok(2));
        sys.close(type_in).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
    });
}
