#!/bin/sh
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
#: mkdir rm cp cmp ls
cp ../input text && cmp ../input text || fail cp
ls -la || fail ls
#: wc tr cat
[ "$(wc -l < text | tr -d ' ')" -eq 2000 ] || fail wc
[ "$(cat text text | wc -l | tr -d ' ')" -eq 4000 ] || fail cat
#: head tail cat cmp
for n in 1 2 3 4 5 6 7 8; do
    mkdir -p tree/$n || fail mkdir
    head -n $((n * 50)) text | tail -n 50 > tree/$n/part || fail tail
done
head -n 400 text > expected
cat tree/1/part tree/2/part tree/3/part tree/4/part tree/5/part tree/6/part tree/7/part \
    tree/8/part | cmp - expected || fail head
#: grep
with=$(grep -c kernel text)
without=$(grep -v -c kernel text)
[ $((with + without)) -eq 2000 ] || fail grep
grep -n 'signal process' text > found || fail grep
#: sed grep
sed -e 's/thread/THREAD/g' -e '/lock/d' text > edited || fail sed
grep lock edited && fail sed
sed -n '10,14p' text || fail sed
#: awk
[ "$(awk '{ sum += $1 } END { print sum }' text)" -eq 2001000 ] || fail awk
awk '{ count[$2]++ } END { for (word in count) print count[word], word }' text > counted
#: cut sort uniq head
cut -d ' ' -f 2 text | sort | uniq -c | sort -rn | head -n 5 || fail sort
sort -k 5,5n -k 1,1n text > sorted && sort -c -k 5,5n -k 1,1n sorted || fail sort
#: cut tr paste sort comm wc
cut -d ' ' -f 3 text | tr a-z A-Z > upper && cut -d ' ' -f 1 text > numbers || fail cut
paste numbers upper > pasted || fail paste
sort numbers > left && sort numbers > right && comm -3 left right > only || fail comm
[ -s only ] && fail comm
#: find xargs wc tr
[ "$(find tree -type f -name part | wc -l | tr -d ' ')" -eq 8 ] || fail find
find tree -type f | xargs wc -l || fail xargs
find tree -type d -exec test -r {} \; || fail find
#: sed diff
sed 's/parent/child/' text > changed
diff text text || fail diff
diff text changed > differences && fail diff
[ -s differences ] || fail diff
#: tar cmp mkdir
tar cf tree.tar tree || fail tar
mkdir unpacked && (cd unpacked && tar xf ../tree.tar) || fail tar
cmp tree/5/part unpacked/tree/5/part || fail tar
#: gzip cmp
gzip -c text > text.gz && gzip -dc text.gz | cmp - text || fail gzip
#: mv ln touch chmod rm
for n in 1 2 3 4 5; do
    touch file$n && mv file$n moved$n && ln moved$n linked$n || fail mv
    ln -s moved$n symbolic$n && chmod 600 moved$n && rm linked$n symbolic$n moved$n || fail rm
done
#: date uname id
date || fail date
uname -a || fail uname
id || fail id
#: tty stty
case $(tty) in
/dev/*) ;;
*) fail tty ;;
esac
stty -a > modes || fail stty
#: expr
n=0
while [ $n -lt 10 ]; do
    n=$(expr $n + 1) || fail expr
done
[ "$(expr 12 \* 12)" -eq 144 ] || fail expr
#: basename dirname
for path in tree/*/part; do
    [ "$(basename "$path")" = part ] || fail basename
    [ -d "$(dirname "$path")" ] || fail dirname
done
#: cat grep
cat > letter <<END
To: ${LOGNAME:-nobody}
Subject: iteration $iteration
END
grep "^Subject: iteration $iteration" letter || fail "here-document"
#: tee cmp
tee copy < text > another && cmp copy another || fail tee
#: dd od cksum head
dd if=text of=block bs=512 count=16 2> said || fail dd
od -c block | head -n 3 || fail od
cksum text block || fail cksum
#: sleep sort cmp
(sort -r text > backwards) &
(sort text > forwards) &
wait || fail wait
[ -s backwards ] && [ -s forwards ] || fail wait
sleep 100 &
kill $! || fail kill
wait $! && fail kill
#: env
for n in 1 2 3 4 5; do
    [ "$(sh -c "(echo inner; exit $n); echo \$?")" = "inner
$n" ] || fail sh
done
[ "$(env WHO=me sh -c 'echo $WHO')" = me ] || fail env
#:
cd .. && rm -rf work || fail rm
iteration=$((iteration + 1))
echo "pseudo-user: $iteration"
done
echo "DONE"
