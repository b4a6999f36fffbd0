# tar.sh DIR - in the guest: unpacks a tree with every kind of file into DIR, packs it again, compares.
dir=$1
source=/tmp/source
mkdir -p "$source/deep" && cd "$source"
at=deep
for level in $(seq 1 30); do at=$at/level$level; mkdir "$at"; echo "$level" >"$at/file"; done
for file in $(seq 1 400); do head -c $((file * 137 % 9000)) /dev/urandom >"small$file"; done
head -c 30000000 /dev/urandom >large
truncate -s 200M sparse && printf end | dd of=sparse bs=1 seek=150000000 conv=notrunc status=none
ln large hard
ln -s ../no/such/place soft
mkfifo fifo
printf 'a' >"name with spaces and ünïcödé"
printf 'b' >"$(head -c 255 /dev/zero | tr '\0' n)"
chmod 600 small1; chmod 1777 deep; chmod 2755 deep/level1
touch -d '1999-12-31 23:59:59.123456789' small2
# This format keeps nanoseconds.
tar -C "$source" --format=posix --sparse -cf /tmp/out.tar .
mkdir "$dir/tree" && tar -C "$dir/tree" -xpf /tmp/out.tar
tar -C "$dir/tree" --format=posix --sparse -cf - . >/tmp/back.tar
mkdir /tmp/back && tar -C /tmp/back -xpf /tmp/back.tar
list() { (cd "$1" && find . -printf '%y %m %U:%G %n %T@ %l %p ' -a \( -type f -printf '%s\n' -o -printf '\n' \) | sort); }
# The link count of directories is a matter of the file system.
list "$source" | sed -E 's/^(d [0-7]+ [0-9:]+) [0-9]+/\1/' >/tmp/list.source
list "$dir/tree" | sed -E 's/^(d [0-7]+ [0-9:]+) [0-9]+/\1/' >/tmp/list.tree
list /tmp/back | sed -E 's/^(d [0-7]+ [0-9:]+) [0-9]+/\1/' >/tmp/list.back
diff /tmp/list.source /tmp/list.tree
diff /tmp/list.source /tmp/list.back
tar -C "$dir/tree" -df /tmp/out.tar
[ "$(stat -c %b "$dir/tree/sparse")" -lt 100000 ] || { echo "the sparse file takes $(stat -c %b "$dir/tree/sparse") blocks"; exit 1; }
rm -rf "$dir/tree"
[ -z "$(ls -A "$dir")" ]
echo "$(wc -l </tmp/list.source) files out and back"
