//! Every example runs: each is a module here, and its `main` must succeed.

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

/// In a process of its own, because the example forks.
#[test]
fn index_runs() {
    let mut program = crate::child::Child::fork(|_| index::main().expect("the example succeeds"));
    assert_eq!(program.wait(), 0);
}

/// In a process of its own, on the main thread, like a program.
#[test]
fn signals_runs() {
    let mut program = crate::child::Child::fork(|_| signals::main().expect("the example succeeds"));
    assert_eq!(program.wait(), 0);
}
