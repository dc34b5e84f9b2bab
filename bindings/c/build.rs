//! Sets the name by which programs find the shared library at run time. Its number is that of the
//! interface: it rises when programs have to be compiled again.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtontine.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
