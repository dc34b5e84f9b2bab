//! Measures the costs of the steps of the virtual Unix on this machine, and prints a file of costs.
//!
//! ```text
//! $ cargo run --release -p tontine-unix-sim --example costs > costs.txt
//! ```

fn main() {
    print!("{}", tontine_unix_sim::CostModel::measure());
}
