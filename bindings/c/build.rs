//! Gives the shared library the name by which programs find it at run time. The number is the
//! interface's: it goes up when a program would have to be compiled anew.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtontine.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
