# make.sh DIR - in the guest: builds a C program of 40 files in DIR, runs it, changes one file and builds again.
dir=$1
mkdir "$dir/src" && cd "$dir/src"
for n in $(seq 1 40); do
    printf '#include "all.h"\nint f%d(int a) { return a + %d; }\n' "$n" "$n" >"f$n.c"
    printf 'int f%d(int a);\n' "$n" >>all.h
done
{
    printf '#include <stdio.h>\n#include "all.h"\nint main(void) { int a = 0;\n'
    for n in $(seq 1 40); do printf 'a = f%d(a);\n' "$n"; done
    printf 'printf("%%d\\n", a); return 0; }\n'
} >main.c
cat >Makefile <<'MAKE'
OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))
program: $(OBJECTS)
	$(CC) -o $@ $^
%.o: %.c all.h
	$(CC) -O -c -o $@ $<
MAKE
make -s -j3
[ "$(./program)" = 820 ]
make -q # nothing is left to do: times are in order
sleep 1
printf '#include "all.h"\nint f1(int a) { return a + 1001; }\n' >f1.c
[ "$(make | grep -c -- ' -c ')" = 1 ] || { echo "make did not build exactly what changed"; exit 1; }
[ "$(./program)" = 1820 ]
echo "built and ran"
