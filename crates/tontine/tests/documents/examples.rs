//! Runs every example: each is a module here, whose `main` must succeed.

#[path = "../../examples/epoll.rs"]
mod epoll;
#[path = "../../examples/hello.rs"]
mod hello;
#[path = "../../examples/index.rs"]
mod index;
#[path = "../../examples/reply.rs"]
mod reply;
#[path = "../../examples/signals.rs"]
mod signals;
#[path = "../../examples/typed.rs"]
mod typed;

#[test]
fn hello_runs() {
    hello::main().expect("the example succeeds");
}

#[test]
fn epoll_runs() {
    epoll::main().expect("the example succeeds");
}

#[test]
fn typed_runs() {
    typed::main().expect("the example succeeds");
}

#[test]
fn reply_runs() {
    reply::main().expect("the example succeeds");
}

/// Runs the example in its own process, because the example forks.
#[test]
fn index_runs() {
    let mut program = crate::child::Child::fork(|_| index::main().expect("the example succeeds"));
    assert_eq!(program.wait(), 0);
}

/// Runs the example in its own process, on the main thread, like a program.
#[test]
fn signals_runs() {
    let mut program = crate::child::Child::fork(|_| signals::main().expect("the example succeeds"));
    assert_eq!(program.wait(), 0);
}
