//! Says of each argument whether Envoy would take it as a pattern: `check '/v[0-9]+' '(?=ahead)'`.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

fn main() {
    let mut patterns: Vec<String> = std::env::args().skip(1).collect();
    if patterns.is_empty() {
        patterns = ["/v[0-9]+", "(?=ahead)", "(a{1000}){2}", r"\y"].map(str::to_owned).to_vec();
    }
    for pattern in patterns {
        match re2::check(&pattern) {
            Ok(()) => println!("{pattern}: taken"),
            Err(refusal) => println!("{pattern}: refused: {refusal}"),
        }
    }
}
