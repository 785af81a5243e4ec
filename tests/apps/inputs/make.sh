# GNU make with four jobs: 40 C files by gcc, and the program that they make.
for i in $(seq 40); do echo "int f$i(int x) { return x * $i; }" >"f$i.c"; done
{ for i in $(seq 40); do echo "int f$i(int);"; done; echo '#include <stdio.h>'; echo 'int main(void) { int s = 0;'
  for i in $(seq 40); do echo "s += f$i($i);"; done; echo 'printf("%d\n", s); return 0; }'; } >main.c
printf 'objects := $(patsubst %%.c,%%.o,$(wildcard *.c))\nprogram: $(objects)\n\t@gcc -o $@ $^\n%%.o: %%.c\n\t@gcc -O1 -c -o $@ $<\n' >Makefile
make -j 4 && ./program
