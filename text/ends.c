/* SPDX-License-Identifier: MIT
 * ends.c - the tokens that end a generated text. A model may have several: the end of a text, of a turn, of a
 * message. A GGUF file names some of them, and llama.cpp knows others by their texts; beside a
 * tokenizer.json, generation_config.json has them. */
#include "core/base/error.h"
#include "text/read.h"

int32_t bs_tok_add_end(bs_tokenizer *t, int64_t id, bs_error *err) {
  const uint32_t most = sizeof t->ends / sizeof t->ends[0];
  if (id < 0 || bs_tokenizer_ends(t, id)) return BS_OK;
  if (t->n_ends == most)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-TOK-KIND", "more than %u tokens end a text", most);
  t->ends[t->n_ends++] = id;
  return BS_OK;
}

int bs_tokenizer_ends(const bs_tokenizer *t, int64_t id) {
  int is = 0;
  for (uint32_t i = 0; t != NULL && i < t->n_ends; i++) is |= t->ends[i] == id;
  return is;
}

static void leave_out(bs_tokenizer *t, const char *token) {
  const int64_t id = bs_tokenizer_id(t, token);
  uint32_t left = 0;
  for (uint32_t i = 0; i < t->n_ends; i++)
    if (t->ends[i] != id) t->ends[left++] = t->ends[i];
  t->n_ends = left;
}

static int has(const bs_tokenizer *t, const char *token) {
  return bs_tokenizer_ends(t, bs_tokenizer_id(t, token));
}

int32_t bs_tok_add_known_ends(bs_tokenizer *t, bs_error *err) {
  static const char *const known[] = {"<|eot_id|>",
                                      "<|im_end|>",
                                      "<|end|>",
                                      "<|return|>",
                                      "<|call|>",
                                      "<|flush|>",
                                      "<|calls|>",
                                      "<end_of_turn>",
                                      "<|endoftext|>",
                                      "</s>",
                                      "<|eom_id|>",
                                      "<EOT>",
                                      "_<EOT>",
                                      "[EOT]",
                                      "[EOS]",
                                      "<|end_of_text|>",
                                      "<end_of_utterance>",
                                      "<eos>",
                                      "<turn|>",
                                      "<|tool_response>",
                                      ("<\xef\xbd\x9c"
                                       "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
                                      "[e~["};
  int32_t rc = BS_OK;
  for (size_t i = 0; i < sizeof known / sizeof known[0] && rc == BS_OK; i++)
    rc = bs_tok_add_end(t, bs_tokenizer_id(t, known[i]), err);
  /* Where the end of a message is another token, these are none. */
  if ((has(t, "<|return|>") || has(t, "<|flush|>")) && (has(t, "<|call|>") || has(t, "<|calls|>")))
    leave_out(t, "<|end|>");
  if (has(t, "<|tool_response>") || has(t, "<|plamo:eos|>")) leave_out(t, "</s>");
  return rc;
}
