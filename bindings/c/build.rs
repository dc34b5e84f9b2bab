//! Sets the name by which programs find the shared library at run time. The number in the name is
//! the version of the interface: it increases when programs must be compiled again.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtontine.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
