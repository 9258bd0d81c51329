from data_stack.show.contact_sheet import contact_sheet as contact_sheet
