if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/fuzz_http_parse.c)
  baton_fuzz(fuzz_http_parse LIBS bt_common)
endif()
