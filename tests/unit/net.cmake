baton_unit(test_process LIBS bt_common)
baton_unit(test_file LIBS bt_common)
baton_unit(test_log_file LIBS bt_common)
baton_unit(test_key_file LIBS bt_common)
foreach(module loop net listen stream http_head http_parse http_strict http_conn
        http_call)
  if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/test_${module}.c)
    baton_unit(test_${module} LIBS bt_common SOURCES ../support/pair.c)
  endif()
endforeach()
baton_unit(test_resolver LIBS bt_common
           SOURCES ../support/pair.c ../support/dns.c)
