//! Every example does what it says: each is a module here, and its `main` runs to its end.

#[path = "../examples/epoll.rs"]
mod epoll;
#[path = "../examples/hello.rs"]
mod hello;
#[path = "../examples/reply.rs"]
mod reply;
#[path = "../examples/typed.rs"]
mod typed;

#[test]
fn hello_runs() {
    hello::main().expect("it ends well");
}

#[test]
fn epoll_runs() {
    epoll::main().expect("it ends well");
}

#[test]
fn typed_runs() {
    typed::main().expect("it ends well");
}

#[test]
fn reply_runs() {
    reply::main().expect("it ends well");
}
