baton_fuzz(fuzz_json_splice LIBS bt_base)
baton_fuzz(fuzz_sse LIBS bt_base)
