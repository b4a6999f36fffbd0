# journal.py DIR JOURNAL STOP - on a kernel client: changes in DIR; a line in JOURNAL for each, written and synced after
# its call returned. Ends when the file STOP appears. tests/nfsclient/src/bin/nfsload/journal.rs reads the lines.
import os
import sys

directory, journal, stop = sys.argv[1:]
lines = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
log = os.open(f"{directory}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def acknowledged(what, number):
    os.write(lines, f"{what} {number}\n".encode())
    os.fsync(lines)


number = 0
while not os.path.exists(stop):
    number += 1
    draft = f"{directory}/{number}.tmp"
    content = f"{number:08} ".encode() * 400
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(file, content[:1000])
    os.write(file, content[1000:])
    os.fsync(file)
    os.close(file)
    acknowledged("S", number)
    os.rename(draft, f"{directory}/{number}")
    acknowledged("R", number)
    os.write(log, f"line {number:08}\n".encode())
    os.fsync(log)
    acknowledged("L", number)
    if number % 3 == 0:
        os.unlink(f"{directory}/{number}")
        acknowledged("U", number)
    if number % 4 == 0:
        os.mkdir(f"{directory}/{number}.d")
        acknowledged("D", number)
print(f"{number} rounds on one mount")
