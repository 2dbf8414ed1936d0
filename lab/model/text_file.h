/* SPDX-License-Identifier: MIT
 * text_file.h - small text files, read whole and taken line by line. */
#ifndef BS_LAB_MODEL_TEXT_FILE_H
#define BS_LAB_MODEL_TEXT_FILE_H
#include "blockshock/blockshock.h"

/* The whole file as a text that ends with NUL, malloc'd. BS_INPUT with `id`: not a regular file, more than
 * 64 MiB, a zero byte in it. */
int32_t bs_text_file_read(const char *path, const char *id, char **out_text, bs_error *err);
/* Takes the next line off *rest, without its end (\n or \r\n), in place; NULL at the end of the text. */
char *bs_text_file_line(char **rest);
#endif
