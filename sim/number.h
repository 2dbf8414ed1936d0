/* SPDX-License-Identifier: MIT
 * number.h - numbers in the texts of options, in the syntax of configuration files. */
#ifndef BS_SIM_NUMBER_H
#define BS_SIM_NUMBER_H

/* A finite decimal number, whatever the program's locale is. 0: the text is none. Thread-safe. */
int sim_number(const char *text, double *out_value);
#endif
