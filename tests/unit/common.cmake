foreach(module status log str random timers hash utf8 arena buf sse metrics json_push json_write)
  baton_unit(test_${module} LIBS bt_base)
endforeach()
baton_unit(test_proof LIBS bt_proof)

# jansson is the second opinion here.
if(TARGET PkgConfig::JANSSON)
  foreach(module json json_splice)
    baton_unit(test_${module} LIBS bt_base PkgConfig::JANSSON)
  endforeach()
endif()
