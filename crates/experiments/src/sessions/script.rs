//! The work of a pseudo-user: [`Script`], for `/bin/sh` and the machine's utilities.
//!
//! A [`ScriptCommand`] names the utilities that it needs; if one is missing, the step is omitted.
//! Steps check their results, so a session that reports success has done all of its work.

use std::fmt::Write as _;

use tontine_host::error::{MeasureError, Result};
use tontine_host::os::program::find;

/// The first line that a session prints.
pub(super) const BEGINS: &str = "pseudo-user: begins";
/// The last line that a session prints, if all steps succeeded.
pub(super) const DONE: &str = "pseudo-user: done";
/// Number of lines of the text that a session works on.
const LINES: usize = 2_000;
/// Minimum number of steps of a script.
const FEWEST: usize = STEPS.len() * 2 / 3;

/// The script for this machine.
#[derive(Debug)]
pub(super) struct Script {
    /// The script.
    pub(super) text: String,
    /// The utilities that the script would use, but that are missing.
    pub(super) missing: Vec<&'static str>,
}

struct ScriptCommand {
    needs: &'static [&'static str],
    does: &'static str,
}

impl Script {
    /// Creates a script that runs all steps `iterations` times.
    ///
    /// # Errors
    /// Returns `Skipped` if too many utilities are missing.
    pub(super) fn new(iterations: usize) -> Result<Self> {
        Self::with(iterations, |utility| find(utility).is_some())
    }

    fn with(iterations: usize, there: impl Fn(&str) -> bool) -> Result<Self> {
        let mut missing: Vec<&str> =
            STEPS.iter().flat_map(|step| step.needs).copied().filter(|name| !there(name)).collect();
        missing.sort_unstable();
        missing.dedup();
        let possible =
            |step: &&ScriptCommand| step.needs.iter().all(|name| !missing.contains(name));
        let steps: Vec<&ScriptCommand> = STEPS.iter().filter(possible).collect();
        // The first step creates the text for the other steps.
        if steps.len() < FEWEST || !possible(&&STEPS[0]) {
            return Err(MeasureError::skip(format!(
                "needs the utilities of a user, and found no {}: {} of {} steps are possible",
                missing.join(", "),
                steps.len(),
                STEPS.len()
            )));
        }
        let mut text =
            HEAD.replace("BEGINS", BEGINS).replace("ITERATIONS", &iterations.to_string());
        for step in steps {
            text.push_str(step.does);
        }
        text.push_str(&TAIL.replace("DONE", DONE));
        Ok(Self { text, missing })
    }
}

/// Returns the text that a session works on, which is the same for all sessions.
pub(super) fn input() -> String {
    const WORDS: [&str; 12] = [
        "signal", "process", "session", "master", "kernel", "thread", "lock", "vnode", "socket",
        "terminal", "group", "parent",
    ];
    let mut text = String::new();
    let mut state: u32 = 1993;
    for line in 1..=LINES {
        let mut word = || {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            WORDS[(state >> 16) as usize % WORDS.len()]
        };
        let (first, second, third) = (word(), word(), word());
        let _ = writeln!(text, "{line} {first} {second} {third} {}", line * 7 % 1000);
    }
    text
}

const HEAD: &str = r#"#!/bin/sh
LC_ALL=C
TMPDIR=$HOME
export LC_ALL TMPDIR
fail() {
    echo "pseudo-user: $1 failed"
    exit 1
}
cd "$HOME" || fail cd
echo "BEGINS"
(: > /dev/tty) || fail "opening the controlling terminal"
iteration=0
while [ $iteration -lt ITERATIONS ]; do
rm -rf work
mkdir work && cd work || fail mkdir
"#;

const TAIL: &str = r#"
cd .. && rm -rf work || fail rm
iteration=$((iteration + 1))
echo "pseudo-user: $iteration"
done
echo "DONE"
"#;

const STEPS: &[ScriptCommand] = &[
    ScriptCommand {
        needs: &["mkdir", "rm", "cp", "cmp", "ls"],
        does: r#"
cp ../input text && cmp ../input text || fail cp
ls -la || fail ls
"#,
    },
    ScriptCommand {
        needs: &["wc", "tr", "cat"],
        does: r#"
[ "$(wc -l < text | tr -d ' ')" -eq 2000 ] || fail wc
[ "$(cat text text | wc -l | tr -d ' ')" -eq 4000 ] || fail cat
"#,
    },
    ScriptCommand {
        needs: &["head", "tail", "cat", "cmp"],
        does: r#"
for n in 1 2 3 4 5 6 7 8; do
    mkdir -p tree/$n || fail mkdir
    head -n $((n * 50)) text | tail -n 50 > tree/$n/part || fail tail
done
head -n 400 text > expected
cat tree/1/part tree/2/part tree/3/part tree/4/part tree/5/part tree/6/part tree/7/part \
    tree/8/part | cmp - expected || fail head
"#,
    },
    ScriptCommand {
        needs: &["grep"],
        does: r#"
with=$(grep -c kernel text)
without=$(grep -v -c kernel text)
[ $((with + without)) -eq 2000 ] || fail grep
grep -n 'signal process' text > found || fail grep
"#,
    },
    ScriptCommand {
        needs: &["sed", "grep"],
        does: r#"
sed -e 's/thread/THREAD/g' -e '/lock/d' text > edited || fail sed
grep lock edited && fail sed
sed -n '10,14p' text || fail sed
"#,
    },
    ScriptCommand {
        needs: &["awk"],
        does: r#"
[ "$(awk '{ sum += $1 } END { print sum }' text)" -eq 2001000 ] || fail awk
awk '{ count[$2]++ } END { for (word in count) print count[word], word }' text > counted
"#,
    },
    ScriptCommand {
        needs: &["cut", "sort", "uniq", "head"],
        does: r#"
cut -d ' ' -f 2 text | sort | uniq -c | sort -rn | head -n 5 || fail sort
sort -k 5,5n -k 1,1n text > sorted && sort -c -k 5,5n -k 1,1n sorted || fail sort
"#,
    },
    ScriptCommand {
        needs: &["cut", "tr", "paste", "sort", "comm", "wc"],
        does: r#"
cut -d ' ' -f 3 text | tr a-z A-Z > upper && cut -d ' ' -f 1 text > numbers || fail cut
paste numbers upper > pasted || fail paste
sort numbers > left && sort numbers > right && comm -3 left right > only || fail comm
[ -s only ] && fail comm
"#,
    },
    ScriptCommand {
        needs: &["find", "xargs", "wc", "tr"],
        does: r#"
[ "$(find tree -type f -name part | wc -l | tr -d ' ')" -eq 8 ] || fail find
find tree -type f | xargs wc -l || fail xargs
find tree -type d -exec test -r {} \; || fail find
"#,
    },
    ScriptCommand {
        needs: &["sed", "diff"],
        does: r#"
sed 's/parent/child/' text > changed
diff text text || fail diff
diff text changed > differences && fail diff
[ -s differences ] || fail diff
"#,
    },
    ScriptCommand {
        needs: &["tar", "cmp", "mkdir"],
        does: r#"
tar cf tree.tar tree || fail tar
mkdir unpacked && (cd unpacked && tar xf ../tree.tar) || fail tar
cmp tree/5/part unpacked/tree/5/part || fail tar
"#,
    },
    ScriptCommand {
        needs: &["gzip", "cmp"],
        does: r#"
gzip -c text > text.gz && gzip -dc text.gz | cmp - text || fail gzip
"#,
    },
    ScriptCommand {
        needs: &["mv", "ln", "touch", "chmod", "rm"],
        does: r#"
for n in 1 2 3 4 5; do
    touch file$n && mv file$n moved$n && ln moved$n linked$n || fail mv
    ln -s moved$n symbolic$n && chmod 600 moved$n && rm linked$n symbolic$n moved$n || fail rm
done
"#,
    },
    ScriptCommand {
        needs: &["date", "uname", "id"],
        does: r#"
date || fail date
uname -a || fail uname
id || fail id
"#,
    },
    ScriptCommand {
        needs: &["tty", "stty"],
        does: r#"
case $(tty) in
/dev/*) ;;
*) fail tty ;;
esac
stty -a > modes || fail stty
"#,
    },
    ScriptCommand {
        needs: &["expr"],
        does: r#"
n=0
while [ $n -lt 10 ]; do
    n=$(expr $n + 1) || fail expr
done
[ "$(expr 12 \* 12)" -eq 144 ] || fail expr
"#,
    },
    ScriptCommand {
        needs: &["basename", "dirname"],
        does: r#"
for path in tree/*/part; do
    [ "$(basename "$path")" = part ] || fail basename
    [ -d "$(dirname "$path")" ] || fail dirname
done
"#,
    },
    ScriptCommand {
        needs: &["cat", "grep"],
        does: r#"
cat > letter <<END
To: ${LOGNAME:-nobody}
Subject: iteration $iteration
END
grep "^Subject: iteration $iteration" letter || fail "here-document"
"#,
    },
    ScriptCommand {
        needs: &["tee", "cmp"],
        does: r#"
tee copy < text > another && cmp copy another || fail tee
"#,
    },
    ScriptCommand {
        needs: &["dd", "od", "cksum", "head"],
        does: r#"
dd if=text of=block bs=512 count=16 2> said || fail dd
od -c block | head -n 3 || fail od
cksum text block || fail cksum
"#,
    },
    ScriptCommand {
        needs: &["sleep", "sort", "cmp"],
        does: r#"
(sort -r text > backwards) &
(sort text > forwards) &
wait || fail wait
[ -s backwards ] && [ -s forwards ] || fail wait
sleep 100 &
kill $! || fail kill
wait $! && fail kill
"#,
    },
    ScriptCommand {
        needs: &["env"],
        does: r#"
for n in 1 2 3 4 5; do
    [ "$(sh -c "(echo inner; exit $n); echo \$?")" = "inner
$n" ] || fail sh
done
[ "$(env WHO=me sh -c 'echo $WHO')" = me ] || fail env
"#,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_step_without_its_utility_is_omitted() {
        let whole = Script::with(1, |_| true).expect("all are there");
        assert!(whole.missing.is_empty() && whole.text.contains("gzip -c"));
        let bare = Script::with(1, |name| name != "gzip").expect("all but one");
        assert_eq!(bare.missing, ["gzip"]);
        assert!(!bare.text.contains("gzip -c") && bare.text.ends_with(&format!("\"{DONE}\"\n")));
    }

    #[test]
    fn script_without_enough_utilities_skips_and_names_them() {
        let without = ["tr", "cmp", "sort", "head", "grep"];
        let found = Script::with(1, |name| !without.contains(&name)).expect_err("too few");
        assert!(
            matches!(&found, MeasureError::Skipped(why) if why.contains("no cmp, grep")),
            "{found}"
        );
    }

    #[test]
    fn session_input_has_the_expected_lines_and_words() {
        let text = input();
        assert_eq!(text.lines().count(), LINES);
        for words in ["signal process", "parent", "lock", "kernel"] {
            assert!(text.contains(words), "no {words}");
        }
    }
}
