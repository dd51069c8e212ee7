use super::{check, quote};

#[test]
fn takes_what_re2_takes() {
    for pattern in [
        "",
        ".*",
        "/foo.*",
        "^/v[0-9]+$",
        "a|b",
        "(a|b)*",
        "(?i)abc",
        "(?i:abc)d",
        "(?-s)a",
        "(?i-s:a)",
        "(?)",
        "(?:)",
        "(?P<name>a)",
        "(?<name>a)",
        "a{0,1000}",
        "a{1000}",
        "a{2,}",
        "a{,5}",
        "a{",
        "a{x}",
        "{",
        "x{01}",
        "(a{10}){100}",
        "(a{0,1}){1000}",
        "a*?",
        "a+?",
        "a??",
        "a{2}?",
        "^*",
        "(^)*",
        r"\b+",
        "||",
        "()",
        "(|a)*",
        r"\Qa.b*\E+",
        r"\Qabc",
        r"\Q\E",
        r"[\d\s\w]",
        r"[^\D]",
        "[]a]",
        "[^]a]",
        "[a-]",
        "[-a]",
        "[a-c-e]",
        "[[:alpha:]]",
        "[[:^word:]]",
        "[[:]",
        "[[=a=]]",
        "[a&&b]",
        "[a~~b]",
        "[[a]",
        r"\pL",
        r"\p{Greek}",
        r"\p{^Lu}",
        r"\PN",
        r"[\p{Han}a]",
        r"\x41",
        r"\x{FF}",
        r"\012",
        r"\12",
        r"\0",
        r"\_",
        r"\-",
        r"\/",
        r"\ ",
        r"\A\z",
        r"\C",
        r"\a\f\n\r\t\v",
        "é+",
        "日本",
        "a)b".split(')').next().unwrap(),
        "}",
        "]",
        "a]",
        "-",
        r"\.",
        "^/foo\\/*",
        "(?i)\\.?[a-z_][a-z_0-9]*(\\.[a-z_][a-z_0-9]*)*",
        "(((((a{2}){2}){2}){2}){2})",
    ] {
        assert_eq!(check(pattern), Ok(()), "{pattern}");
    }
}

#[test]
fn refuses_what_re2_refuses() {
    for (pattern, says) in [
        ("*.foo", "missing argument to repetition operator: `*`"),
        ("+", "missing argument to repetition operator: `+`"),
        ("(*)", "missing argument to repetition operator: `*`"),
        ("a|*", "missing argument to repetition operator: `*`"),
        ("(?i)*", "missing argument to repetition operator: `*`"),
        ("/v(?x) a", "invalid perl operator: `(?x`"),
        ("/a{1001}", "invalid repetition size: `{1001}`"),
        ("a{2,1001}", "invalid repetition size: `{2,1001}`"),
        ("a{2,1}", "invalid repetition size: `{2,1}`"),
        ("a{999999999}", "invalid repetition size: `{999999999}`"),
        ("(a{100}){11}", "invalid repetition size: `{11}`"),
        ("((a{10}){10}){11}", "invalid repetition size: `{11}`"),
        ("(b(a{501})){2}", "invalid repetition size: `{2}`"),
        ("a**", "bad repetition operator: `**`"),
        ("a*+", "bad repetition operator: `*+`"),
        ("a+?*", "bad repetition operator: `+?*`"),
        ("a{2}{3}", "bad repetition operator: `{2}{3}`"),
        ("(?=a)", "invalid perl operator: `(?=`"),
        ("(?!a)", "invalid perl operator: `(?!`"),
        ("(?<=a)b", "invalid perl operator: `(?<`"),
        ("(?<!a)b", "invalid perl operator: `(?<`"),
        ("(?>a)", "invalid perl operator: `(?>`"),
        ("(?#c)", "invalid perl operator: `(?#`"),
        ("(?-)", "invalid perl operator: `(?-)`"),
        ("(?i-)", "invalid perl operator: `(?i-)`"),
        ("(?i", "missing ): `(?i`"),
        ("(?P<n a>b)", "invalid named capture group: `(?P<n a>`"),
        ("(?P<>b)", "invalid named capture group: `(?P<>`"),
        ("(?P=n)", "invalid perl operator: `(?P`"),
        (r"(a)\1", "invalid escape sequence: `\\1`"),
        (r"\8", "invalid escape sequence: `\\8`"),
        (r"\y", "invalid escape sequence: `\\y`"),
        (r"\Z", "invalid escape sequence: `\\Z`"),
        (r"\u0041", "invalid escape sequence: `\\u`"),
        (r"\k<n>", "invalid escape sequence: `\\k`"),
        (r"\h", "invalid escape sequence: `\\h`"),
        (r"\é", "invalid escape sequence: `\\é`"),
        (r"\x4", "invalid escape sequence: `\\x4`"),
        (r"\x{100}", "invalid escape sequence: `\\x{100`"),
        (r"\x{10FFFF}", "invalid escape sequence: `\\x{10F`"),
        (r"\400", "invalid escape sequence: `\\400`"),
        (r"\x{}", "invalid escape sequence: `\\x{}`"),
        (r"\", "trailing \\: `\\`"),
        ("(a", "missing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing ]: `[a`"),
        ("[", "missing ]: `[`"),
        ("[]", "missing ]: `[]`"),
        ("[a-", "missing ]: `[a-`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        (r"[a-\d]", "invalid escape sequence: `\\d`"),
        (r"[\b]", "invalid escape sequence: `\\b`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\p", "invalid character class range: `\\p`"),
        (r"\p{greek}", "invalid character class range: `\\p{greek}`"),
        (r"\p{Alphabetic}", "invalid character class range: `\\p{Alphabetic}`"),
        (r"\p{sc=Greek}", "invalid character class range: `\\p{sc=Greek}`"),
        (r"\pX", "invalid character class range: `\\pX`"),
    ] {
        let said = check(pattern).expect_err(pattern).to_string();
        assert_eq!(said, says, "{pattern}");
    }
}

#[test]
fn deep_nesting_is_refused_and_long_text_is_no_problem() {
    assert!(check(&"(".repeat(5000)).is_err());
    assert!(check(&format!("{}a{}", "(".repeat(2000), ")".repeat(2000))).is_err());
    assert_eq!(check(&"a".repeat(100_000)), Ok(()));
    assert!(check(&"x{1000}".repeat(400)).is_err(), "too large for RE2's memory");
}

#[test]
fn quoted_text_is_a_pattern_of_itself() {
    for text in ["/a.b", "/(x)+[y]{2}|^$", "*.foo", "é\\"] {
        assert_eq!(check(&quote(text)), Ok(()), "{text}");
    }
    assert_eq!(quote("/a.b*"), r"/a\.b\*");
}
