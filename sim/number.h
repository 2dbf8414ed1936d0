/* SPDX-License-Identifier: MIT
 * number.h - numbers in the texts of options, in the syntax of configuration files. */
#ifndef BS_SIM_NUMBER_H
#define BS_SIM_NUMBER_H

/* Reads a finite decimal number in any locale. Returns 0 where the text is not a number. Thread-safe. */
int sim_number(const char *text, double *out_value);
#endif
