//! Measures what the steps of the virtual Unix cost here, and prints it as a file of costs.
//!
//! ```text
//! $ cargo run --release -p tontine-unix-sim --example costs > costs.txt
//! ```

fn main() {
    print!("{}", tontine_unix_sim::CostModel::measure());
}
