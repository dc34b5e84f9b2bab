//! Compile tests of nested locks, as pairs of programs that differ in one line. In each pair, the
//! program that keeps the lock order compiles, and the compiler rejects the other with an error
//! that names both locks.
//!
//! The programs include the crate's own `lock` module (`lock_order/world.inc`), which no external
//! program can name. `TRYBUILD=overwrite cargo test -p tontine-unix-sim --test sim lock_order`
//! updates the expected messages.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the programs that keep the lock order.
fn passing() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lock_order");
    let files = fs::read_dir(folder).expect("the folder exists");
    let paths = files.map(|file| file.expect("a readable entry").path());
    paths.filter(|path| path.to_string_lossy().ends_with("-pass.rs")).collect()
}

fn twin(path: &Path) -> PathBuf {
    PathBuf::from(path.to_string_lossy().replace("-pass.rs", "-fail.rs"))
}

#[test]
fn lock_order_programs_of_a_pair_differ_in_one_line() {
    let passing = passing();
    assert!(passing.len() >= 4, "{passing:?}");
    for path in passing {
        let read = |path: &Path| fs::read_to_string(path).expect("a readable program");
        let (kept, broken) = (read(&path), read(&twin(&path)));
        assert_eq!(kept.lines().count(), broken.lines().count(), "{}", path.display());
        let different = kept.lines().zip(broken.lines()).filter(|(one, other)| one != other);
        assert_eq!(different.count(), 1, "{}", path.display());
    }
}

#[test]
#[ignore = "compiles many programs"]
fn program_that_breaks_the_lock_order_does_not_compile() {
    let programs = trybuild::TestCases::new();
    for path in passing() {
        programs.compile_fail(twin(&path));
        programs.pass(path);
    }
}
