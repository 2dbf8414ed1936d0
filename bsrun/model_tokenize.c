/* SPDX-License-Identifier: MIT
 * model_tokenize.c - `bsrun model tokenize MODEL TEXT`: the token ids of a text. */
#include <stdlib.h>
#include <string.h>

#include "blockshock/text.h"
#include "bsrun/model.h"
#include "core/base/error.h"
#include "formats/npy.h"

static const args_option model_tokenize_options[] = {
    {OPT_TO, "the ids, a .npy file of i64", 0},
    ARGS_TABLE,
    ARGS_HELP,
};

static const bs_field fields[] = {
    {"id", "id", BS_FIELD_RIGHT, 0}, {"token", "token", 0, 0}, {"text", "text", 0, 0}};

/* A row of a token: as the vocabulary writes it, and what it adds to the text. */
static json_t *row_of(const bs_tokenizer *t, int64_t id, const char *text, uint64_t bytes) {
  const char *token = bs_tokenizer_token(t, id);
  return json_pack("{s:I, s:s?, s:s%}", "id", (json_int_t)id, "token", token, "text", text, (size_t)bytes);
}

static int32_t make_rows(const bs_tokenizer *t, const int64_t *ids, uint64_t n, json_t *rows, bs_error *err) {
  bs_text_stream *stream = NULL;
  const char *text = "";
  uint64_t bytes = 0;
  int32_t rc = bs_text_stream_open(t, BS_DECODE_SPECIAL, &stream, err);
  for (uint64_t i = 0; i < n && rc == BS_OK; i++) {
    rc = bs_text_stream_add(stream, ids[i], &text, &bytes, err);
    if (rc == BS_OK && json_array_append_new(rows, row_of(t, ids[i], text, bytes)) != 0)
      rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %llu tokens", (unsigned long long)n);
  }
  bs_text_stream_close(stream);
  return rc;
}

static int32_t print(const args *a, int format, const bs_tokenizer *t, const int64_t *ids, uint64_t n,
                     bs_error *err) {
  const int64_t dims[] = {(int64_t)n};
  json_t *rows = json_array();
  int32_t rc = make_rows(t, ids, n, rows, err);
  if (rc == BS_OK && args_has(a, "to")) rc = bs_npy_write(args_value(a, "to"), BS_I64, 1, dims, ids, err);
  if (rc == BS_OK && format == BS_FORMAT_TABLE)
    bs_print(stdout, "%llu token%s of %zu bytes\n", (unsigned long long)n, n == 1 ? "" : "s",
             strlen(a->words[1]));
  if (rc == BS_OK) rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
  json_decref(rows);
  return rc;
}

static int32_t tokenize(const args *a, bs_error *err) {
  bs_tokenizer *t = NULL;
  const char *text = a->words[1];
  int64_t *ids = NULL;
  uint64_t n = 0;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = bs_tokenizer_open(a->words[0], &t, err);
  if (rc == BS_OK) rc = bs_tokenizer_encode(t, text, strlen(text), 0, NULL, 0, &n, err);
  if (rc == BS_OK && (ids = malloc((size_t)(n + 1) * sizeof *ids)) == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %llu ids", (unsigned long long)n);
  if (rc == BS_OK) rc = bs_tokenizer_encode(t, text, strlen(text), 0, ids, n, &n, err);
  if (rc == BS_OK) rc = print(a, format, t, ids, n, err);
  free(ids);
  bs_tokenizer_close(t);
  return rc;
}

const bsrun_verb model_tokenize = {
    .name = "tokenize",
    .words = "MODEL TEXT [--to FILE] [-o FORMAT]",
    .summary = "the token ids of a text",
    .about =
        "MODEL is a folder with tokenizer.json, that file, a model's file next to it, or a .gguf file,\n"
        "which contains its tokenizer. The ids are those of Hugging Face's tokenizers, with the tokens\n"
        "that the model wants around a text. `token` is the text in the vocabulary, `text` is the part of\n"
        "the output that the token adds. Exit 3: a part of the tokenizer is not known; the error names it.\n"
        "Exit 4: the file is damaged, or TEXT is not UTF-8. Exit 5: Block-Shock was built without PCRE2 or\n"
        "utf8proc.\n",
    .examples =
        "  bsrun model tokenize minilm 'Hello world!'\n"
        "  bsrun model tokenize gpt2 'Once upon a time' --to prompt.npy -o json\n",
    .options = model_tokenize_options,
    .run = tokenize,
    .min_words = 2,
    .max_words = 2,
    .takes = ":file",
};
