//! Names the library as the loader knows the real one, so that it takes its place below a folder of the tests.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
