# git.sh DIR - in the guest: makes a repository of at least 50 MB outside DIR, clones it into DIR, checks both.
dir=$1
export GIT_CONFIG_NOSYSTEM=1
git config --global user.name rig
git config --global user.email rig@example.invalid
git config --global gc.auto 0
source=/tmp/source
mkdir "$source" && cd "$source"
git init -q
for part in $(seq 1 8); do # text that packs badly beside random bytes that do not pack
    mkdir "part$part"
    head -c 6600000 /dev/urandom | split -a 3 -b 110000 - "part$part/bytes"
    head -c 1800000 /dev/urandom | od -An -tx1 -w32 | split -a 3 -b 60000 - "part$part/text"
    git add -A && git commit -q -m "part $part"
done
size=$(du -sk .git | cut -f1)
[ "$size" -ge 50000 ] || { echo "the repository has only $size KiB"; exit 1; }
cd "$dir"
git clone -q --no-local "file://$source" clone
git -C clone fsck --full --strict
[ "$(git -C clone rev-parse HEAD)" = "$(git -C "$source" rev-parse HEAD)" ]
[ -z "$(git -C clone status --porcelain)" ]
diff -r --exclude=.git "$source" clone
git -C clone mv part1/textaaa part1/renamed && git -C clone commit -q -am renamed && git -C clone gc -q
git -C clone fsck --full --strict
echo "cloned $size KiB"
